"""`meks init` writes a cluster file that validates, from what AWS knows and a few answers."""

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber

from megatron_eks.ops.aws.tools import caller_role
from megatron_eks.ops.cluster import init
from megatron_eks.ops.cluster.capacity import Reservation
from megatron_eks.ops.failure import Failure
from megatron_eks.project import load_project
from tests.ops.aws.fakes import ACCOUNT, NOBODY, TODAY, Clients, console, said

ROLE = f"arn:aws:iam::{ACCOUNT}:role/ops/Admin"


class Place:
    """A folder without a cluster file, and who runs the command there."""

    def __init__(self, folder, aws) -> None:
        self.file, self.aws = folder / "cluster.yaml", aws
        self.console = console()

    def run(self, answers=None, *, yes=False, force=False, address="198.51.100.7", **flags):
        """Run the command."""
        self.console = console(answers, yes=yes)
        given = {name.replace("_", "-"): flags[name] for name in flags}
        given = {"admin-role-arn": ROLE, **given}

        def public_address():
            if address is None:
                raise TimeoutError
            return f"{address}\n"

        place = (self.aws, self.console, TODAY.date())
        return init.run(self.file, given, *place, public_address=public_address, force=force)

    def plan(self):
        """Return the plan of what was written."""
        return load_project(self.file, TODAY.date()).cluster


@pytest.fixture
def place(tmp_path, aws):
    """Return an empty folder."""
    return Place(tmp_path, aws)


def test_proposals_make_a_cluster_that_validates(tmp_path, aws):
    """Role, address and zones are found out; the rest is the workshop's, in a folder of its own."""
    place = Place(tmp_path / "new", aws)
    assert place.run(yes=True, address="8.8.4.4") == 0
    project = load_project(place.file, TODAY.date())
    assert project.warnings == ()
    assert project.cluster.access.admin_role_arns == (ROLE,)
    assert project.cluster.access.public_cidrs == ("8.8.4.4/32",)
    assert project.cluster.availability_zones == ("us-east-2a", "us-east-2b", "us-east-2c")
    assert [pool.instance.name for pool in project.cluster.pools] == ["p4d.24xlarge"]


def test_each_value_has_its_reason_beside_it(place):
    """Whoever opens the file needs no manual for what stands in it."""
    place.run(yes=True, address="8.8.4.4")
    text = place.file.read_text()
    assert text.startswith("# yaml-language-server: $schema=")
    assert text.count("#") >= 12
    assert all(len(line) <= 110 for line in text.splitlines())


def test_answers_are_taken_as_they_are_typed(place):
    """A return takes what is proposed."""
    assert place.run("\nlab\ng5.8xlarge\n\n\n4\n\n", address="8.8.4.4") == 0
    plan = place.plan()
    assert (plan.name, plan.pools[0].name, plan.pools[0].max_nodes) == ("lab", "g5", 4)
    assert "name of the cluster [training]: " in said(place.console)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (0, "198.51.100.7"),
        (0, "10.0.0.0/8"),
        (1, "bad name!"),
        (1, "My_Cluster"),
        (1, "a: b"),
        (2, "p5.24xlarge"),
        (3, "block"),
        (3, "cr-0123456789abcdef0"),
        (4, "us-east-1a"),
        (5, "two"),
        (5, "0"),
        (6, "1000"),
    ],
)
def test_a_wrong_answer_is_told_and_asked_again(place, wrong, found):
    """At once, and none of the others is lost."""
    right = ["8.8.4.4/32", "lab", "g5.8xlarge", "spot", "us-east-2b", "4", "2400"]
    typed = [*right[:wrong], found, *right[wrong:]]
    assert place.run("\n".join([*typed, ""])) == 0
    plan = place.plan()
    assert (plan.name, plan.pools[0].zone, plan.pools[0].max_nodes) == ("lab", "us-east-2b", 4)
    question = (
        "address range",
        "name of",
        "instance type [",
        "capacity: ",
        "zone (",
        "most nodes",
        "file system, GiB",
    )
    assert said(place.console).count(question[wrong]) == 2


def test_an_input_that_ends_ends_the_questions(place):
    """Ctrl-D is no answer, and is not asked again for ever."""
    with pytest.raises(Failure, match="add --name"):
        place.run("8.8.4.4/32\nbad name!\n")
    assert not place.file.exists()


def test_a_reservation_says_where_its_nodes_are(place, monkeypatch):
    """EC2 knows its zone, number of nodes and end; only these are left to be asked."""
    found = Reservation(
        id="cr-0123456789abcdef0",
        state="active",
        instance_type="p5.48xlarge",
        zone="us-east-2c",
        count=6,
        starts=None,
        ends=datetime(2027, 1, 31, 11, 30, tzinfo=UTC),
        is_block=True,
    )
    monkeypatch.setattr(init, "described", lambda *_: found)
    place.run(yes=True, address="8.8.4.4", instance_type="p5.48xlarge", capacity=found.id)
    (pool,) = place.plan().pools
    assert (pool.zone, pool.max_nodes, pool.capacity.kind) == ("us-east-2c", 6, "capacity_block")
    assert (pool.capacity.reservation_id, pool.capacity.ends_at) == (found.id, found.ends)
    with pytest.raises(Failure, match="is active, of p5"):
        place.run(yes=True, force=True, instance_type="p4d.24xlarge", capacity=found.id)


def test_flags_need_no_terminal(place):
    """All of them together answer every question."""
    flags = {
        "name": "lab",
        "instance_type": "p5.48xlarge",
        "zone": "us-east-2c",
        "max_nodes": 8,
        "lustre_gib": 4800,
        "public_cidr": "8.8.4.0/24",
    }
    assert place.run(**flags) == 0
    plan = place.plan()
    assert (plan.pools[0].zone, plan.pools[0].max_nodes) == ("us-east-2c", 8)
    assert plan.storage.file_systems[0].capacity_gib == 4800


def test_without_a_terminal_a_missing_flag_is_named(place):
    """And the one that takes what is proposed."""
    with pytest.raises(Failure, match="add --public-cidr or --yes") as caught:
        place.run(name="lab", max_nodes=2)
    assert caught.value.code == 2
    assert not place.file.exists()


def test_a_file_that_is_there_is_left_alone(place):
    """Unless somebody says otherwise."""
    place.file.write_text("mine")
    with pytest.raises(Failure, match="is there already"):
        place.run(yes=True)
    assert place.file.read_text() == "mine"
    assert place.run(yes=True, force=True, address="8.8.4.4") == 0


def test_an_instance_type_of_no_name_has_a_suggestion(place):
    """Before AWS is asked for zones that have it."""
    with pytest.raises(Failure, match=r"did you mean 'p5\.4xlarge'"):
        place.run(yes=True, instance_type="p5.24xlarge")


def test_an_address_that_nobody_tells_is_asked_for(place):
    """A network without a way to AWS's page is no reason to end."""
    with pytest.raises(Failure, match="add --public-cidr"):
        place.run(yes=True, address=None)
    assert place.run("\n8.8.4.4/32\n\n\n\n\n\n\n", address=None) == 0


def test_what_does_not_validate_is_not_written(place):
    """The findings say what is wrong with the answers."""
    assert place.run(yes=True, address="8.8.4.4", lustre_gib=1000) == 1
    assert "MEKS-0210" in said(place.console)
    assert not place.file.exists()


def caller(arn, *, role=None, error=None):
    """Return clients for which the caller is somebody."""
    sts, iam = (boto3.client(name, region_name="us-east-2", **NOBODY) for name in ("sts", "iam"))
    stub = Stubber(sts)
    stub.add_response("get_caller_identity", {"Account": ACCOUNT, "Arn": arn, "UserId": "x"})
    stub.activate()
    stub = Stubber(iam)
    if role is not None:
        name = role.rpartition("/")[2]
        facts = {"Path": "/", "RoleId": "AROAEXAMPLEROLEIDXX", "CreateDate": TODAY}
        stub.add_response("get_role", {"Role": {"RoleName": name, "Arn": role, **facts}})
    elif error is not None:
        stub.add_client_error("get_role", error)
    stub.activate()
    return Clients(sts=sts, iam=iam)


SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role"
SSO = "AWSReservedSSO_Admin_0123456789abcdef"


@pytest.mark.parametrize(
    ("clients", "found"),
    [
        (lambda: caller(f"{SESSION}/Admin/me", role=ROLE), ROLE),
        (
            lambda: caller(f"{SESSION}/Admin/me", error="AccessDenied"),
            f"arn:aws:iam::{ACCOUNT}:role/Admin",
        ),
        (
            lambda: caller(f"{SESSION}/{SSO}/me", error="AccessDenied"),
            f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/{SSO}",
        ),
        (lambda: caller(f"arn:aws:iam::{ACCOUNT}:user/me"), None),
        (lambda: caller(f"arn:aws:iam::{ACCOUNT}:root"), None),
    ],
)
def test_the_callers_role_has_its_path_again(clients, found):
    """A session's name has lost it, and an access entry needs it."""
    assert caller_role(clients()) == found
