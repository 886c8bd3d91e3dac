"""CDK stacks: they render a cluster plan as CloudFormation and decide nothing themselves."""
