"""What several job files of one cluster do to each other, and to the time that its nodes have."""

from datetime import date
from pathlib import Path

import pytest
import yaml

from megatron_eks.project import check_files

ROOT = Path(__file__).parents[3]
TODAY = date(2026, 11, 21)
CLUSTER = (ROOT / "cluster.yaml").read_text()
RUN = "megatron-cpt-techpulse"
BLOCK = (
    "    max_nodes: 2\n    capacity: "
    "{type: capacity_block, id: cr-0123456789abcdef0, ends_at: '2026-11-25T11:30:00Z'}"
)


def job(file: str, /, **changes: object) -> str:
    """Return a shipped job file with some of its keys changed, blocks key by key."""
    values = yaml.safe_load((ROOT / "jobs" / f"{file}.yaml").read_text())
    values.setdefault("runtime", {})
    if "learning_rate" in values.get("training", {}):
        values["training"] |= {"learning_rate": 0.00001, "min_learning_rate": 0.0}
    for key, value in changes.items():
        values[key] = values[key] | value if isinstance(value, dict) else value
    return yaml.safe_dump(values)


def findings(folder: Path, *jobs: str, cluster: str = CLUSTER) -> list[str]:
    """Check the files of a project, and leave out the documentation values of the cluster."""
    (folder / "cluster.yaml").write_text(cluster)
    files = [folder / f"job{index}.yaml" for index in range(len(jobs))]
    for file, text in zip(files, jobs, strict=True):
        file.write_text(text)
    found = check_files(folder / "cluster.yaml", files, TODAY).findings
    lines = [str(each).replace(f"{folder}/", "") for each in found]
    return [line for line in lines if "MEKS-0212" not in line]


def test_two_jobs_of_one_name(tmp_path):
    """The second one would be the first one, changed."""
    found = findings(
        tmp_path, job("fetch-tokenizer"), job("fetch-tokenizer", directory="/shared/b")
    )
    assert [line.split(":", 1)[0] for line in found] == ["error MEKS-0327 job1.yaml"]


def test_a_name_that_the_operator_gives_a_service(tmp_path):
    """A Service of an Indexed Job has the job's name; those of a PyTorchJob end with -worker-N."""
    first, second = job(RUN, name="run"), job("ddp-llama-3-2-1b", name="run-worker-0")
    (line,) = findings(tmp_path, first, second)
    assert "MEKS-0327" in line
    assert "job0.yaml has a Service run-worker-0 too" in line


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fetch-tokenizer", {"tokenizer": "mistralai/Mistral-7B-v0.3"}),
        ("data-prep-techpulse", {"input": ["/shared/other.jsonl"]}),
        ("import-llama-3-1-8b", {"source": "/shared/models/other"}),
    ],
)
def test_two_jobs_that_write_to_one_place(tmp_path, name, changes):
    """What is there afterwards is a mixture."""
    (line,) = findings(tmp_path, job(name), job(name, name="other", **changes))
    assert line.startswith("warning MEKS-0385 job1.yaml")


def test_the_prefix_that_data_preparation_was_given(tmp_path):
    """It adds the key of the JSON objects and a suffix."""
    run = job(RUN, data={"prefix": "/shared/data/megatron/techpulse"})
    (line,) = findings(tmp_path, run, job("data-prep-techpulse"))
    assert line.endswith("- use /shared/data/megatron/techpulse_text_document")


def test_a_prefix_without_its_ending(tmp_path):
    """Upstream's page names the prefix that was asked for, and its tool adds to it."""
    (line,) = findings(tmp_path, job(RUN, data={"prefix": "/shared/data/megatron/techpulse"}))
    assert line.startswith("warning MEKS-0325 job0.yaml")
    assert "- use /shared/data/megatron/techpulse_text_document, unless" in line


@pytest.mark.parametrize("name", ["a_content_document", "a_text_sentence"])
def test_a_prefix_of_another_key(tmp_path, name):
    """The middle is the key of the JSON objects, whatever it is."""
    assert findings(tmp_path, job(RUN, data={"prefix": f"/shared/data/{name}"})) == []


@pytest.mark.parametrize(
    ("size", "nodes", "count"), [("4xlarge", 2, 1), ("4xlarge", 1, 0), ("8xlarge", 2, 0)]
)
def test_nodes_that_meet_over_tcp(tmp_path, size, nodes, count):
    """EFA begins at g5.8xlarge, and one node needs none."""
    cluster = CLUSTER.replace("p4d.24xlarge", f"g5.{size}")
    run = job("ddp-llama-3-2-1b", nodes=nodes)
    said = [line for line in findings(tmp_path, run, cluster=cluster) if "MEKS-0398" in line]
    assert len(said) == count


def test_weights_that_nobody_has_converted(tmp_path):
    """Megatron reads its own form, and conversion does not happen in place."""
    run = job(RUN, checkpoint={"pretrained": "/shared/models/llama-3.1-8b"})
    (line,) = findings(tmp_path, run, job("fetch-llama-3-1-8b"), job("import-llama-3-1-8b"))
    assert line.startswith("error MEKS-0334 job0.yaml")


def test_weights_of_another_model(tmp_path):
    """The file of the conversion says which model they are of."""
    run, bring = job(RUN), job("import-llama-3-1-8b", model="mistral-7b")
    line, named = findings(tmp_path, run, bring)
    assert "MEKS-0334 job0.yaml" in line
    assert "puts weights of mistral-7b there, and the model is llama-3.1-8b" in line
    assert named.startswith("warning MEKS-0334 job1.yaml")


def test_tokens_of_another_tokenizer(tmp_path):
    """The same numbers would mean other words."""
    prepare = job("data-prep-techpulse", tokenizer="/shared/tokenizer/mistral")
    (line,) = findings(tmp_path, job(RUN), prepare)
    assert line.startswith("warning MEKS-0325 job0.yaml")


@pytest.mark.parametrize(
    ("name", "changes", "other"),
    [
        ("import-llama-3-1-8b", {"direction": "export"}, "fetch-llama-3-1-8b"),
        ("export-techpulse", {"direction": "import"}, "bridge-cpt-techpulse"),
    ],
)
def test_the_wrong_direction(tmp_path, name, changes, other):
    """The source is in the form that the conversion should make."""
    (line,) = findings(tmp_path, job(name, **changes), job(other))
    assert line.startswith("error MEKS-0334 job0.yaml")
    assert " direction: " in line


def test_an_export_of_what_megatron_lm_has_saved(tmp_path):
    """Its checkpoints lack the configuration that Megatron-Bridge's have."""
    export = job("export-techpulse", source="/shared/checkpoints/techpulse-cpt")
    (line,) = findings(tmp_path, export, job(RUN))
    assert line.startswith("error MEKS-0334 job0.yaml")
    bridge = job(
        "bridge-cpt-techpulse", checkpoint={"directory": "/shared/checkpoints/techpulse-cpt"}
    )
    found = findings(tmp_path, export, job(RUN), bridge)
    assert any(line.startswith("warning MEKS-0334 job0.yaml") for line in found)


def test_spot_without_another_try(tmp_path):
    """The first node that EC2 takes back ends the job."""
    cluster = CLUSTER.replace("max_nodes: 2", "max_nodes: 2\n    capacity: {type: spot}")
    found = findings(tmp_path, job(RUN, runtime={"gang_restarts": 0}), cluster=cluster)
    assert [line.split()[:2] for line in found] == [["warning", "MEKS-0231"]] * 2
    assert " runtime.gang_restarts: " in found[1]


@pytest.mark.parametrize(
    ("file", "changes", "place"),
    [
        ("fetch-tokenizer", {}, "tokenizer"),
        ("ddp-llama-3-2-1b", {"data": {"dataset": "HuggingFaceFW/fineweb-edu"}}, "data.dataset"),
        (RUN, {"image": f"docker.io/mine/megatron@sha256:{'0' * 64}"}, "image"),
    ],
)
def test_what_no_node_reaches(tmp_path, file, changes, place):
    """Without NAT and proxy there are AWS's endpoints alone."""
    network = (
        "network: {nat_gateways: 0, interface_endpoints: [ec2, ecr.api, ecr.dkr, eks-auth]}\n"
        "images: {mirror: 111122223333.dkr.ecr.us-east-2.amazonaws.com/mirror}\n"
    )
    found = findings(tmp_path, job(file, **changes), cluster=CLUSTER + network)
    (line,) = (each for each in found if "MEKS-0399" not in each)
    assert line.startswith("error MEKS-0244 job0.yaml")
    assert f" {place}: " in line


def test_a_mirror_that_the_endpoints_do_not_lead_to(tmp_path):
    """Endpoints of ECR are of their own region."""
    network = (
        "network: {nat_gateways: 0, interface_endpoints: [ec2, ecr.api, ecr.dkr, eks-auth]}\n"
        "images: {mirror: 111122223333.dkr.ecr.us-west-2.amazonaws.com/mirror}\n"
    )
    (line,) = findings(tmp_path, cluster=CLUSTER + network)
    assert "MEKS-0244" in line
    assert " images.mirror: " in line


def test_checkpoints_that_fill_the_file_system_together(tmp_path):
    """Each of the jobs has room alone."""
    jobs = [
        job(RUN, name=f"run-{index}", checkpoint={"directory": f"/shared/run-{index}"})
        for index in range(4)
    ]
    (line,) = findings(tmp_path, *jobs)
    assert line.startswith("warning MEKS-0379 job3.yaml")
    assert "the checkpoints of 4 jobs take 1" in line


def test_a_run_that_outlasts_its_capacity_block(tmp_path):
    """Four more days of 16 A100 GPUs do not hold it, at half of their peak."""
    cluster = CLUSTER.replace("    max_nodes: 2", BLOCK)
    (line,) = findings(tmp_path, job(RUN, training={"train_iters": 20000}), cluster=cluster)
    assert line.startswith("warning MEKS-0382 job0.yaml")
    assert findings(tmp_path, job(RUN, training={"train_iters": 5000}), cluster=cluster) == []


def test_a_run_that_saves_nothing_before_its_capacity_block_ends(tmp_path):
    """It would begin anew in the next block, and in the one after that."""
    cluster = CLUSTER.replace("    max_nodes: 2", BLOCK)
    run = job(RUN, training={"train_iters": 20000}, checkpoint={"interval": 15000})
    error, warning = findings(tmp_path, run, cluster=cluster)
    assert error.startswith("error MEKS-0382 job0.yaml")
    assert warning.startswith("warning MEKS-0375 job0.yaml")


def test_an_argument_that_the_dockerfile_does_not_declare(tmp_path):
    """Docker ignores it but for a line in the build's log."""
    build = "images: {megatron: {build_args: {EFA_VERSION: '1.49.0'}}}\n"
    (line,) = findings(tmp_path, cluster=CLUSTER + build)
    assert line.startswith("warning MEKS-0277")
    assert "did you mean 'EFA_INSTALLER_VERSION'?" in line


def test_an_argument_that_it_declares(tmp_path):
    """It is what the key is for."""
    build = "images: {megatron: {build_args: {EFA_INSTALLER_VERSION: '1.49.0'}}}\n"
    assert findings(tmp_path, cluster=CLUSTER + build) == []


def test_the_key_that_data_preparation_was_given(tmp_path):
    """What it writes is named by the key, for Megatron and for PyTorch."""
    preparation = job("data-prep-techpulse", json_keys=["content"])
    found = findings(tmp_path, preparation, job(RUN), job("ddp-llama-3-2-1b"))
    assert [line.split(": ")[0] for line in found] == [
        "warning MEKS-0325 job1.yaml:10 data.prefix",
        "warning MEKS-0325 job2.yaml:5 data.dataset",
    ]
    assert "use /shared/data/megatron/techpulse_content_document" in found[0]


@pytest.mark.parametrize("prefix", ["techpulse_other_text_document", "other_text_document"])
def test_data_that_no_job_here_prepares(tmp_path, prefix):
    """Other data sets stand beside those that are prepared here."""
    run = job(RUN, data={"prefix": f"/shared/data/megatron/{prefix}"})
    assert findings(tmp_path, job("data-prep-techpulse"), run) == []


def test_a_preparation_with_a_wrong_name_is_one_mistake(tmp_path):
    """Runs that read what it should have been called have no finding."""
    prefix = "/shared/data/megatron/techpulse_text_document"
    (line,) = findings(tmp_path, job("data-prep-techpulse", output_prefix=prefix), job(RUN))
    assert line.startswith("error MEKS-0325 job0.yaml")


def test_an_unknown_model_is_one_mistake(tmp_path):
    """Nothing is said of its weights."""
    found = findings(tmp_path, job("import-llama-3-1-8b"), job(RUN, model="llama-3-8b"))
    assert [line.split()[1] for line in found] == ["MEKS-0305"]


def test_a_mount_that_cannot_be_is_one_mistake(tmp_path):
    """Not one for every path of every job."""
    cluster = CLUSTER.replace("    capacity_gib", "    mount_path: /tmp\n    capacity_gib", 1)
    (line,) = findings(tmp_path, job(RUN), job("fetch-tokenizer"), cluster=cluster)
    assert line.startswith("error MEKS-0219 cluster.yaml")


def test_an_import_of_another_model_than_was_fetched(tmp_path):
    """The name of a model on Hugging Face says which it is."""
    fetched = job("fetch-llama-3-1-8b", model="meta-llama/Llama-3.1-70B")
    line, named = findings(tmp_path, fetched, job("import-llama-3-1-8b"))
    assert named.startswith("warning MEKS-0334 job0.yaml")
    assert "fetch-llama-3-1-8b brings llama-3.1-70b there, and the model is llama-3.1-8b" in line


@pytest.mark.parametrize(("export", "codes"), [("true", ["MEKS-0371"]), ("false", [])])
def test_checkpoints_in_an_exported_prefix(tmp_path, export, codes):
    """What the file system writes back there would be in the copy, and the copy in the other."""
    repository = f"{{path: /a, s3_uri: s3://corp-runs, export_changes: {export}}}"
    cluster = CLUSTER.replace(
        "    capacity_gib", f"    data_repositories: [{repository}]\n    capacity_gib", 1
    )
    run = job(RUN, checkpoint={"s3_uri": "s3://corp-runs/one"})
    assert [line.split()[1] for line in findings(tmp_path, run, cluster=cluster)] == codes


@pytest.mark.parametrize(("layers", "codes"), [(16, ["MEKS-0334"]), (32, [])])
def test_a_model_that_its_base_weights_do_not_fit(tmp_path, layers, codes):
    """A changed architecture has other tensors than the preset that was imported."""
    values = yaml.safe_load(job(RUN))
    values["model"] = {"preset": "llama-3.1-8b", "num_layers": layers}
    run = yaml.safe_dump(values)
    found = findings(tmp_path, job("import-llama-3-1-8b"), run)
    assert [line.split()[1] for line in found] == codes


def test_an_export_of_another_model_than_was_trained(tmp_path):
    """The converter would look for tensors that are not there."""
    export = job("export-techpulse", model="llama-3.2-3b")
    (line,) = findings(tmp_path, job("bridge-cpt-techpulse"), export)
    assert line.startswith("error MEKS-0334 job1.yaml")
    assert line.endswith("use llama-3.1-8b")


@pytest.mark.parametrize("swapped", [False, True])
def test_checkpoints_where_another_job_puts_something(tmp_path, swapped):
    """Retention would delete what was fetched."""
    run = job("fsdp-llama-2-7b", checkpoint={"directory": "/shared/models/llama-3.1-8b"})
    jobs = [run, job("fetch-llama-3-1-8b")]
    (line,) = findings(tmp_path, *(reversed(jobs) if swapped else jobs))
    assert line.startswith("warning MEKS-0385 job1.yaml")


def test_on_a_file_system_that_exists_jobs_write_below_what_is_made_for_them(tmp_path):
    """In a folder of their own they may write anywhere, and so on a new file system."""
    lustre = {"id": "fs-0123456789abcdef0", "dns_name": "fs.example.com", "mount_name": "abcdefgh"}
    cluster = yaml.safe_load(CLUSTER)
    beside = [job(RUN, checkpoint={"directory": "/shared/run"}), job("fetch-tokenizer")]
    told = {}
    for existing in (None, lustre, {**lustre, "path": "/teams/nlp"}):
        cluster["storage"]["lustre"]["existing"] = existing
        found = findings(tmp_path, *beside, cluster=yaml.safe_dump(cluster))
        told[str(existing)] = [line for line in found if "MEKS-0856" in line]
    (line,) = told.pop(str(lustre))
    assert list(told.values()) == [[], []]
    assert line.startswith("warning MEKS-0856 job0.yaml:")
    assert (
        "checkpoint.directory: the file system exists, and nothing here makes /shared/run the "
        "pods' - use a path below /shared/data, /shared/tokenizer, "
    ) in line
