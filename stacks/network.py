"""The Network stack: VPC, subnets, routes, endpoints, flow logs and the nodes' security group."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.stacks.base import Place, encryption_key, log_group
from megatron_eks.stacks.policies import acknowledge, role, same_account, statement

_ANYWHERE = "0.0.0.0/0"
_ALL_PROTOCOLS = "-1"
_HTTPS = 443

# Where Kubernetes puts load balancers (EKS User Guide, "VPC and subnet considerations").
_INTERNAL_LOAD_BALANCERS = cdk.CfnTag(key="kubernetes.io/role/internal-elb", value="1")
_PUBLIC_LOAD_BALANCERS = cdk.CfnTag(key="kubernetes.io/role/elb", value="1")


class PlannedNetwork(Construct):
    """A network, or what a VPC that exists lacks."""

    def __init__(self, scope: Construct, construct_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, construct_id)
        self._cluster = plan.name
        self._region = plan.region  # the CDK's own answer is a question to Node
        self._plan = plan.network
        existing = plan.network.existing
        self.nat_gateways: dict[str, str] = {}
        """Their ids, by zone."""
        if existing is not None:
            self._vpc_id, subnets = existing.vpc_id, dict(existing.private_subnets)
        else:
            self._vpc_id = self._vpc()
            self.nat_gateways = self._nat_gateways(self._public_subnets())
            subnets = self._private_subnets(self.nat_gateways)
        nodes = NodeSecurityGroup(self, "Default", vpc_id=self._vpc_id, name=f"{plan.name}-nodes")
        self.place = Place(self._vpc_id, subnets, nodes.security_group_id)
        """VPC, private subnets by zone, and the group of the nodes."""
        self._interface_endpoints(subnets)
        if existing is None:
            self._flow_logs()

    def _vpc(self) -> str:
        acknowledge(
            self,
            "the zone is chosen because the capacity is there",
            "CloudFormation-Validate::W3010",
        )
        return ec2.CfnVPC(
            self,
            "Vpc",
            cidr_block=self._plan.vpc_cidrs[0],
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=[self._name_tag("vpc")],
        ).ref

    def _name_tag(self, name: str) -> cdk.CfnTag:
        return cdk.CfnTag(key="Name", value=f"{self._cluster}-{name}")

    def _subnet(self, kind: str, zone: str, cidr: str, role: cdk.CfnTag) -> str:
        return ec2.CfnSubnet(
            self,
            f"{kind}Subnet-{zone}",
            vpc_id=self._vpc_id,
            availability_zone=zone,
            cidr_block=cidr,
            # NAT gateways and load balancers bring their own addresses, and nothing else is public.
            map_public_ip_on_launch=False,
            tags=[self._name_tag(f"{kind.lower()}-{zone}"), role],
        ).ref

    def _route_table(self, name: str, construct_id: str) -> str:
        return ec2.CfnRouteTable(
            self, construct_id, vpc_id=self._vpc_id, tags=[self._name_tag(name)]
        ).ref

    def _associate(self, construct_id: str, table: str, subnet: str) -> None:
        ec2.CfnSubnetRouteTableAssociation(
            self, construct_id, route_table_id=table, subnet_id=subnet
        )

    def _public_subnets(self) -> dict[str, str]:
        gateway = ec2.CfnInternetGateway(
            self, "InternetGateway", tags=[self._name_tag("internet")]
        ).ref
        self._attachment = ec2.CfnVPCGatewayAttachment(
            self, "InternetGatewayAttachment", vpc_id=self._vpc_id, internet_gateway_id=gateway
        )
        table = self._route_table("public", "PublicRoutes")
        route = ec2.CfnRoute(
            self,
            "PublicDefaultRoute",
            route_table_id=table,
            destination_cidr_block=_ANYWHERE,
            gateway_id=gateway,
        )
        route.add_resource_dependency(self._attachment)
        subnets: dict[str, str] = {}
        for planned in self._plan.subnets:
            zone = planned.zone
            subnet = self._subnet("Public", zone, planned.public_cidr, _PUBLIC_LOAD_BALANCERS)
            self._associate(f"PublicSubnetRoutes-{zone}", table, subnet)
            subnets[zone] = subnet
        return subnets

    def _nat_gateways(self, public: dict[str, str]) -> dict[str, str]:
        gateways: dict[str, str] = {}
        for zone in self._plan.nat_zones:
            name = self._name_tag(f"nat-{zone}")
            address = ec2.CfnEIP(self, f"NatAddress-{zone}", domain="vpc", tags=[name])
            gateway = ec2.CfnNatGateway(
                self,
                f"Nat-{zone}",
                allocation_id=address.attr_allocation_id,
                subnet_id=public[zone],
                tags=[name],
            )
            # An address cannot be given to a VPC without an internet gateway, nor be kept by one
            # that has just lost it (AWS::EC2::EIP and AWS::EC2::NatGateway references).
            address.add_resource_dependency(self._attachment)
            gateway.add_resource_dependency(self._attachment)
            gateways[zone] = gateway.ref
        return gateways

    def _private_subnets(self, nat_gateways: dict[str, str]) -> dict[str, str]:
        subnets: dict[str, str] = {}
        tables: list[str] = []
        for planned in self._plan.subnets:
            zone = planned.zone
            subnet = self._subnet("Private", zone, planned.private_cidr, _INTERNAL_LOAD_BALANCERS)
            table = self._private_routes(zone, nat_gateways)
            self._associate(f"PrivateSubnetRoutes-{zone}", table, subnet)
            subnets[zone] = subnet
            tables.append(table)
        # Image layers and checkpoints would otherwise be billed by the NAT gateway.
        ec2.CfnVPCEndpoint(
            self,
            "S3Endpoint",
            vpc_id=self._vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{self._region}.s3",
            route_table_ids=tables,
        )
        return subnets

    def _private_routes(self, zone: str, nat_gateways: dict[str, str]) -> str:
        """Give each zone a table of its own, so that its NAT gateway can come and go alone."""
        table = self._route_table(f"private-{zone}", f"PrivateRoutes-{zone}")
        nat_zone = self._plan.nat_zone(zone)
        if nat_zone is not None:
            ec2.CfnRoute(
                self,
                f"PrivateDefaultRoute-{zone}",
                route_table_id=table,
                destination_cidr_block=_ANYWHERE,
                nat_gateway_id=nat_gateways[nat_zone],
            )
        return table

    def _interface_endpoints(self, subnets: dict[str, str]) -> None:
        if not self._plan.interface_endpoints:
            return
        group = ec2.CfnSecurityGroup(
            self,
            "EndpointSecurityGroup",
            group_description="Interface endpoints: HTTPS from the VPC",
            vpc_id=self._vpc_id,
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="tcp",
                    from_port=_HTTPS,
                    to_port=_HTTPS,
                    cidr_ip=cidr,
                    description="HTTPS from the VPC",
                )
                for cidr in self._plan.vpc_cidrs
            ],
            tags=[self._name_tag("endpoints")],
        )
        endpoints = Construct(self, "InterfaceEndpoints")
        for service in self._plan.interface_endpoints:
            ec2.CfnVPCEndpoint(
                endpoints,
                service,
                vpc_id=self._vpc_id,
                vpc_endpoint_type="Interface",
                service_name=f"com.amazonaws.{self._region}.{service}",
                private_dns_enabled=True,
                subnet_ids=list(subnets.values()),
                security_group_ids=[group.attr_group_id],
            )

    def _flow_logs(self) -> None:
        name = f"/megatron-eks/{self._cluster}/flow-logs"
        key = encryption_key(
            self,
            "LogKey",
            region=self._region,
            description=f"Flow logs of {self._cluster}",
            log_groups=name,
            removal=cdk.RemovalPolicy.DESTROY,
        )
        group = log_group(self, "FlowLogGroup", name=name, key=key)
        writer = role(
            self,
            "FlowLogRole",
            description=f"Writes the flow logs of {self._cluster}",
            service="vpc-flow-logs.amazonaws.com",
            condition=same_account(),
            statements=[
                statement(
                    ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                    [group.attr_arn],
                )
            ],
        )
        ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=self._vpc_id,
            resource_type="VPC",
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_group_name=group.ref,
            deliver_logs_permission_arn=writer.attr_arn,
            tags=[self._name_tag("flow-logs")],
        )


class NodeSecurityGroup(Construct):
    """The group of nodes with EFA: everything between its members, and out."""

    def __init__(self, scope: Construct, construct_id: str, *, vpc_id: str, name: str) -> None:
        super().__init__(scope, construct_id)
        group = ec2.CfnSecurityGroup(
            self,
            "NodeSecurityGroup",
            group_description="Nodes: everything between them, and out",
            vpc_id=vpc_id,
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol=_ALL_PROTOCOLS,
                    cidr_ip=_ANYWHERE,
                    description="Out through the NAT gateway",
                )
            ],
            tags=[cdk.CfnTag(key="Name", value=name)],
        )
        members = group.attr_group_id
        # EFA demands both rules by name: traffic that bypasses the operating system is not covered
        # by 0.0.0.0/0 (EC2 User Guide, "Get started with EFA", step 1). A rule that names its own
        # group cannot stand inside it, and CDK's SecurityGroup drops the outbound one in silence.
        ec2.CfnSecurityGroupIngress(
            self,
            "NodesFromNodes",
            group_id=members,
            source_security_group_id=members,
            ip_protocol=_ALL_PROTOCOLS,
            description="EFA, and everything else between nodes",
        )
        ec2.CfnSecurityGroupEgress(
            self,
            "NodesToNodes",
            group_id=members,
            destination_security_group_id=members,
            ip_protocol=_ALL_PROTOCOLS,
            description="EFA, and everything else between nodes",
        )
        self.security_group_id = members
        """What nodes carry besides the cluster's own group."""
