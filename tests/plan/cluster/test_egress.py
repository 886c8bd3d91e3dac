"""Certificates and proxies as nodes and pods get them."""

from megatron_eks.plan.cluster.egress import certificates, proxy_port

ONE = "-----BEGIN CERTIFICATE-----\nMIIB\nAAAA\n-----END CERTIFICATE-----"


def test_only_certificates_reach_the_nodes(cluster):
    """What stands between them would be a line of a script there."""
    text = f"corporate root\nCERTIFICATES\nreboot\n{ONE}\n--megatron-eks\n{ONE}\n"
    bundle = "".join(f"    {line}\n" for line in text.splitlines())
    planned = cluster({"gpu_pools:": f"network:\n  ca_bundle: |\n{bundle}gpu_pools:"})
    assert planned.platform.egress.ca_bundle == f"{ONE}\n{ONE}\n"
    assert certificates(ONE) == ["MIIB\nAAAA"]


def test_a_proxys_port_is_its_schemes_where_none_is_written():
    """Network policies open it."""
    assert [proxy_port(f"{scheme}://proxy") for scheme in ("http", "https")] == [80, 443]
    assert proxy_port("http://proxy:3128/") == 3128


def test_without_a_proxy_nothing_is_set(cluster):
    """The default cluster's pods and nodes keep their environment."""
    planned = cluster()
    assert planned.platform.egress.node_variables == ()
    assert planned.platform.egress.pod_variables == ()
    assert planned.platform.egress.image("nvcr.io/nvidia/cuda:1") == "nvcr.io/nvidia/cuda:1"


def test_an_existing_vpc_may_have_no_s3_gateway(cluster):
    """So S3 goes through the proxy there, unless the file says otherwise."""
    proxy = "proxy: {http: 'http://p:1', https: 'http://p:1'}"
    subnets = "{us-east-2a: subnet-01234567, us-east-2b: subnet-01234568}"
    existing = f"vpc_id: vpc-01234567\n  private_subnets: {subnets}"
    hosts = []
    for more in ("", f"\n  {existing}"):
        planned = cluster({"gpu_pools:": f"network:\n  {proxy}{more}\ngpu_pools:"})
        hosts.append(dict(planned.platform.egress.pod_variables)["NO_PROXY"].split(","))
    assert ".s3.us-east-2.amazonaws.com" in hosts[0]
    assert ".s3.us-east-2.amazonaws.com" not in hosts[1]
