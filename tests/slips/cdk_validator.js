// Judges templates by the validator that is part of the CDK, and by default part of `cdk synth`.
//
// Started once with the folder of aws-cdk-lib. Each line of input is JSON: the file of a template
// and its region. Each is answered by a line: what was found.

const { join } = require("node:path");
const { createInterface } = require("node:readline");

const folder = join(process.argv[2], "core", "lib", "validation");
const { CloudFormationValidatePlugin } = require(join(folder, "cloudformation-validate-plugin.js"));
const plugin = new CloudFormationValidatePlugin();

function judge({ file, region, account }) {
  const stack = { stackConstructPath: "", templatePath: file, region, accountId: account };
  const { violations } = plugin.validate({ stackTemplates: [stack] });
  return violations.flatMap(({ ruleName, description, violatingResources }) =>
    violatingResources.map(({ resourceLogicalId, locations }) =>
      [ruleName, resourceLogicalId, locations.join(), description].join(" "),
    ),
  );
}

createInterface({ input: process.stdin }).on("line", (line) => {
  let found;
  try {
    found = judge(JSON.parse(line));
  } catch (error) {
    found = [String(error)]; // what it cannot read, it refuses
  }
  process.stdout.write(`${JSON.stringify(found)}\n`);
});
