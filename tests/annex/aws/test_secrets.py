"""A value that is a secret comes to its service, and nowhere else."""

from tests.annex.aws.stacks import Stacks

REGION = "eu-west-3"


def of(kind, **properties):
    """Return a resource."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


def test_a_subscription_whose_address_is_a_secret(aws):
    """Its value comes to the topic, and into nothing that CloudFormation shows."""
    url, name = "https://events.example.com/integration/0123abcd/enqueue", "prod/alarms"
    aws.client("secretsmanager", REGION).create_secret(Name=name, SecretString=url)
    endpoint = f"{{{{resolve:secretsmanager:{name}:SecretString}}}}"
    resources = {
        "Topic": of("SNS::Topic", TopicName="alarms"),
        "Webhook": of(
            "SNS::Subscription", TopicArn={"Ref": "Topic"}, Protocol="https", Endpoint=endpoint
        ),
    }
    client = aws.client("cloudformation", REGION)
    stacks = Stacks(client)
    assert stacks.create("told", resources) == "CREATE_COMPLETE"
    (found,) = aws.client("sns", REGION).list_subscriptions()["Subscriptions"]
    assert (found["Protocol"], found["Endpoint"]) == ("https", url)
    assert stacks.changes("told", resources) == []
    shown = client.describe_stack_events(StackName="told"), client.get_template(StackName="told")
    assert url not in str(shown)
    assert stacks.delete("told") == "DELETE_COMPLETE"
    resources["Webhook"]["Properties"]["Endpoint"] = endpoint.replace(name, "prod/none")
    assert stacks.create("untold", resources) == "ROLLBACK_COMPLETE"
    assert "find the specified secret" in str(stacks.reasons("untold", "CREATE_FAILED"))
    assert stacks.delete("untold") == "DELETE_COMPLETE"
    aws.client("secretsmanager", REGION).delete_secret(
        SecretId=name, ForceDeleteWithoutRecovery=True
    )
