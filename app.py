"""Entry point of the CDK: `cdk synth`, `cdk deploy`, or `python app.py` without npm."""

from megatron_eks.stacks.app import main

main()
