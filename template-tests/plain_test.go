package templatetests

import (
	"archive/zip"
	"debug/elf"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
	"github.com/idem-go/idempotency/template-tests/provider"
	"github.com/idem-go/idempotency/template-tests/translate"
)

// newPlain adds to a stack what infra/sam and infra/terraform have: the constructs with their defaults,
// and a policy for each grant on the table.
func newPlain(t *testing.T, s awscdk.Stack) {
	alarms := awscdk.NewCfnParameter(s, ptr("AlarmTopic"), &awscdk.CfnParameterProps{
		AllowedPattern: ptr("^arn:.+"), Description: ptr("ARN of the SNS topic that gets the alarms."),
	})
	policies := map[string]awsiam.ManagedPolicy{}
	policy := func(id, description string) awsiam.ManagedPolicy {
		policies[id] = awsiam.NewManagedPolicy(s, &id, &awsiam.ManagedPolicyProps{Description: &description})
		return policies[id]
	}

	records := infra.NewTable(s, "Records", nil)
	records.GrantHandler(policy("RecordsExecutePolicy", "For functions that run operations."), nil)
	records.GrantHandler(policy("RecordsTenantPolicy", "For functions that run operations of one tenant."),
		&infra.GrantOptions{Tenants: []string{tenant}})
	records.GrantOperator(policy("RecordsOperatorPolicy", "For operators who decide open questions."))
	records.GrantReader(policy("RecordsReaderPolicy", "For operators who read records."))
	records.GrantCheck(policy("RecordsCheckPolicy", "For deployments that check the table."))

	handler := infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)})
	handler.UseTable(records, nil)
	worker := infra.NewFunction(s, "Worker", &infra.FunctionProps{Code: given(t)})
	worker.UseTable(records, nil)
	queue := infra.NewQueue(s, "WorkerQueue", worker, &infra.QueueProps{Repeat: infra.Repeatable})
	queue.GrantHideDuplicates(worker)
	relay := infra.NewRelay(s, "Relay", records, &infra.RelayProps{
		Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"worker": queue},
	})
	sweeper := infra.NewSweeper(s, "Sweeper", records, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
	sweeper.GrantEscalation(policy("SweeperOperatorPolicy", "For operators who work off the escalation queue."))
	functions := []awslambda.Function{handler, worker}
	monitoring := infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
		Topic: awssns.Topic_FromTopicArn(s, ptr("Alarms"), alarms.ValueAsString()),
		Table: records, Functions: functions, Metrics: functions, Queues: []*infra.Queue{queue},
		Relays: []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper},
	})
	monitoring.Node().TryRemoveChild(ptr("Dashboard"))
	output := func(id string, value *string) { awscdk.NewCfnOutput(s, &id, &awscdk.CfnOutputProps{Value: value}) }
	output("TableName", records.TableName())
	output("TableARN", records.TableArn())
	output("TableStreamARN", records.TableStreamArn())
	output("EscalationQueueURL", sweeper.EscalationQueue.QueueUrl())
	output("DeadLetterQueueURL", queue.DeadLetters.QueueUrl())
	output("QueueURL", queue.QueueUrl())
	for id, p := range policies {
		output(id+"ARN", p.ManagedPolicyArn())
	}
	for id, f := range map[string]*infra.Function{"Handler": handler, "Worker": worker} {
		output(id+"Name", f.FunctionName())
		output(id+"ARN", f.FunctionArn())
		output(id+"RoleName", f.Role().RoleName())
	}
}

// tenant stands for a parameter in newPlain, which would percent-encode a reference.
const tenant = "TENANT"

// plainParameters are parameters that a construct does not take.
var plainParameters = []struct {
	name      string
	parameter map[string]any
	value     string // what stands for it in the template, as JSON
	reference string
	times     int
}{
	{"LogRetention", map[string]any{"Type": "Number", "Default": 30.0,
		"Description": "Days for which logs are kept: a number that CloudWatch Logs accepts."},
		`"RetentionInDays":30`, `"RetentionInDays":{"Ref":"LogRetention"}`, 4},
	{"Tenant", map[string]any{"Type": "String", "Default": "", "AllowedPattern": "^([A-Za-z0-9._~-]|%[0-9A-F]{2})*$",
		"Description": "The tenant that the tenant policy is for, percent-encoded. Empty: records without a tenant."},
		`"` + tenant + `#*"`, `{"Fn::Sub":"${Tenant}#*"}`, 1},
}

// plain returns the template of newPlain, with the constructs' ids and kinds of alarms as ids of resources.
func plain(t *testing.T) template {
	app := infra.NewApp(ptr(t.TempDir()), nil)
	stack := awscdk.NewStack(app, ptr("idem"), &awscdk.StackProps{
		Description: ptr("The table of idempotency records, its sweeper and relay, a handler, and a worker with its queue."),
		Synthesizer: awscdk.NewDefaultStackSynthesizer(
			&awscdk.DefaultStackSynthesizerProps{GenerateBootstrapVersionRule: jsii.Bool(false)}),
	})
	newPlain(t, stack)
	short := strings.NewReplacer("Monitoring/", "", "Function", "", "Default", "", "/Resource", "", "/", "")
	for _, c := range *stack.Node().FindAll("") {
		if r, ok := c.(awscdk.CfnResource); ok {
			id := short.Replace(strings.TrimPrefix(*r.Node().Path(), "idem/"))
			if *r.CfnResourceType() == "AWS::Lambda::Permission" {
				id += "Permission" // the schedule has its id
			}
			r.OverrideLogicalId(&id)
		}
	}
	made := app.Synth(nil).GetStackByName(stack.StackName()).Template()
	require.Empty(t, infra.Problems(app))
	b, err := json.Marshal(made)
	require.NoError(t, err)
	text := string(b)
	for _, p := range plainParameters {
		require.Equal(t, p.times, strings.Count(text, p.value), p.name)
		text = strings.ReplaceAll(text, p.value, p.reference)
	}
	var tt template
	require.NoError(t, json.Unmarshal([]byte(text), &tt))
	for _, p := range plainParameters {
		tt["Parameters"].(map[string]any)[p.name] = p.parameter
	}
	return tt
}

// TestPlain compares the files for SAM and Terraform with the constructs.
func TestPlain(t *testing.T) {
	tt := plain(t)
	t.Run("rules", func(t *testing.T) {
		rules, said := broken(t, guard(t), tt)
		require.Empty(t, rules, said)
	})
	t.Run("SAM", func(t *testing.T) {
		text := translate.SAM(tt)
		compareText(t, "../infra/sam/template.yaml", text)
		sameInSAM(t, tt, text)
	})
	t.Run("the page for SAM", func(t *testing.T) {
		page, err := os.ReadFile("../infra/sam/README.md")
		require.NoError(t, err)
		parameters := slices.Collect(maps.Keys(tt["Parameters"].(map[string]any)))
		for _, name := range append(parameters, namesOf(tt, "AWS::IAM::ManagedPolicy")...) {
			require.Contains(t, string(page), "\n| `"+name+"` |")
		}
		written := []string{"Handler", "Worker"} // the relay and the sweeper always write their metrics
		for id, alarm := range tt.resources("AWS::CloudWatch::Alarm") {
			function, _ := at(alarm, "Properties", "Dimensions", 0, "Value", "Ref").(string)
			if at(alarm, "Properties", "Namespace") == schema.MetricNamespace && slices.Contains(written, function) {
				require.Regexp(t, "`("+id+"|…"+strings.TrimPrefix(id, function)+")`", string(page))
			}
		}
	})
	t.Run("cfn-lint", func(t *testing.T) {
		linter, err := exec.LookPath("cfn-lint")
		if err != nil {
			t.Skip("cfn-lint is not on PATH: pip install cfn-lint")
		}
		said, err := exec.Command(linter, "--regions", "eu-west-1", "--", "../infra/sam/template.yaml").CombinedOutput()
		require.NoError(t, err, "%s", said)
	})
	t.Run("Terraform", func(t *testing.T) {
		files := translate.Terraform(tt)
		for name, text := range files {
			compareText(t, filepath.Join("../infra/terraform", name), text)
		}
		committed, err := filepath.Glob("../infra/terraform/*.tf")
		require.NoError(t, err)
		require.Len(t, committed, len(files), "a file that is not made any more is left")
		sameInTerraform(t, tt, files)
		for _, parts := range [][]string{{}, {"handler"}, {"worker"}, {"sweeper"}, {"worker", "relay"}} {
			some := map[string]string{}
			for _, name := range append(parts, "main", "records") {
				some[name+".tf"] = files[name+".tf"]
			}
			_, problems := provider.Evaluate(some)
			require.Empty(t, problems, "the page says that %v need only main and records", parts)
		}
		checkTerraformPage(t, files)
	})
}

// checkTerraformPage compares the page with the variables, outputs and policies.
func checkTerraformPage(t *testing.T, files map[string]string) {
	page, err := os.ReadFile("../infra/terraform/README.md")
	require.NoError(t, err)
	call := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindStringSubmatch(string(page))
	require.NotNil(t, call)
	all := strings.Join(slices.Collect(maps.Values(files)), "")
	for _, m := range regexp.MustCompile(`(?ms)^variable "(\w+)" \{\n(.*?)^\}`).FindAllStringSubmatch(all, -1) {
		require.Regexp(t, "(?m)^\\|.*`"+m[1]+"`.*\\|.*\\|.*\\|$", string(page))
		if !strings.Contains(m[2], "default ") {
			require.Contains(t, call[1], "\n  "+m[1]+" ")
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+) += `).FindAllStringSubmatch(call[1], -1) {
		if m[1] != "source" {
			require.Contains(t, all, `variable "`+m[1]+`"`)
		}
	}
	for _, m := range regexp.MustCompile(`resource "aws_iam_policy" "(\w+)"`).FindAllStringSubmatch(all, -1) {
		require.Contains(t, string(page), "\n| `"+m[1]+"` |")
		require.Contains(t, all, `output "`+m[1]+`_arn"`)
	}
	for _, m := range regexp.MustCompile("`(\\w+_(?:url|name|arn))`").FindAllStringSubmatch(string(page), -1) {
		require.Contains(t, all, `output "`+m[1]+`"`)
	}
	for name := range files {
		require.Contains(t, string(page), "\n| `"+name+"` |")
	}
}

// TestPlainBuildLines runs the lines by which the pages build the functions and their archives, in another
// module, and looks for a binary at each CodeUri. Only in the long version: it links four programs.
func TestPlainBuildLines(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("links four functions; with IDEM_LONG=1")
	}
	script := "set -eux\n"
	for _, name := range []string{"../infra/sam/README.md", "../infra/terraform/README.md"} {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		lines := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(string(page))
		require.NotNil(t, lines)
		script += lines[1]
	}
	run, _ := anotherModule(t, "main.go", "sweeper/main.go")
	folder := filepath.Dir(strings.TrimSpace(run("env", "GOMOD")))
	script = strings.NewReplacer("./cmd/handler", "./sweeper", "./cmd/worker", "./sweeper").Replace(script)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOSUMDB=off", "GOWORK=off")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	text, err := os.ReadFile("../infra/sam/template.yaml")
	require.NoError(t, err)
	code := regexp.MustCompile(`CodeUri: (\S+)/`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, code, 4)
	for _, uri := range code {
		binary, err := elf.Open(filepath.Join(folder, uri[1], "bootstrap"))
		require.NoError(t, err)
		require.Equal(t, elf.EM_AARCH64, binary.Machine)
		require.NoError(t, binary.Close())
		archive, err := zip.OpenReader(filepath.Join(folder, uri[1]+".zip"))
		require.NoError(t, err)
		require.Len(t, archive.File, 1)
		require.Equal(t, "bootstrap", archive.File[0].Name)
		require.Equal(t, os.FileMode(0o755), archive.File[0].Mode())
		require.NoError(t, archive.Close())
	}
}
