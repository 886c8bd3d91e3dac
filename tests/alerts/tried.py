"""Tries the rules on a recording, by promtool."""

import subprocess

import yaml

from megatron_eks.plan.cluster.alerts import rule_groups


def run(promtool, tmp_path, recorded, tests):
    """Try the rules on a recording: what is told of an alert at a time."""
    _try(promtool, tmp_path, {"input_series": recorded, "alert_rule_test": tests})


def firing(promtool, tmp_path, recorded, expected):
    """Try that at each time, in minutes, just these alerts fire, by name and labels."""
    tests = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{at}m",
            "exp_samples": [{"labels": _labels(*each), "value": 1} for each in alerts],
        }
        for at, alerts in expected.items()
    ]
    _try(promtool, tmp_path, {"input_series": recorded, "promql_expr_test": tests})


def _labels(alert, labels):
    own = {"alertname": alert.name, "alertstate": "firing", "severity": alert.severity, **labels}
    return named("ALERTS", own)


def named(name, labels):
    """Return a series as promtool writes it."""
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{shown}}}"


def _try(promtool, tmp_path, group):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule_groups()))
    content = {"rule_files": ["rules.yaml"], "tests": [{"interval": "1m", **group}]}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(content))
    done = subprocess.run(  # noqa: S603 -- promtool, on files of the test
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
