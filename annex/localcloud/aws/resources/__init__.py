"""Resource types: what CloudFormation calls to create, change and delete one resource."""
