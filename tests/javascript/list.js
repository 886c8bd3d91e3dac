// Lists clusters, node groups and file systems with the AWS SDK for JavaScript, as JSON.
import { EKSClient, ListClustersCommand, ListNodegroupsCommand } from "@aws-sdk/client-eks";
import { DescribeFileSystemsCommand, FSxClient } from "@aws-sdk/client-fsx";

const eks = new EKSClient({});
const { clusters } = await eks.send(new ListClustersCommand({}));
const groups = {};
for (const clusterName of clusters) {
  groups[clusterName] = (await eks.send(new ListNodegroupsCommand({ clusterName }))).nodegroups;
}
const { FileSystems } = await new FSxClient({}).send(new DescribeFileSystemsCommand({}));
const fileSystems = FileSystems.map((each) => ({
  id: each.FileSystemId,
  mount: each.LustreConfiguration.MountName,
  state: each.Lifecycle,
}));
let refusal = "";
try {
  await eks.send(new ListNodegroupsCommand({ clusterName: "nobody" }));
} catch (error) {
  refusal = error.name;
}
console.log(JSON.stringify({ groups, fileSystems, refusal }));
