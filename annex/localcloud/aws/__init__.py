"""AWS on one machine: moto's services behind a CloudFormation of our own, on loopback."""
