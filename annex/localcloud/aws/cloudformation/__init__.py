"""CloudFormation as `cdk deploy` uses it: templates, change sets, stacks, and their events."""
