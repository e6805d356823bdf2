package cloud

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// hash is what CDK appends to a logical id.
var hash = regexp.MustCompile("[0-9A-F]{8}$")

// The roles of the examples allow what testdata/permissions.txt of template-tests lists, and nothing else.
func TestRolesOfExamples(t *testing.T) {
	list, err := os.ReadFile("../../template-tests/testdata/permissions.txt")
	require.NoError(t, err)
	wanted, actions := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(list)) {
		to, of, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for action := range strings.FieldsSeq(of) {
			if !strings.HasPrefix(action, "logs:") {
				wanted[to+": "+action], actions[action] = true, true
			}
		}
	}
	got := map[string]bool{}
	for _, stack := range []string{"orders-worker", "payments-api"} {
		p, err := Read("../../template-tests/testdata/snapshots/"+stack+".template.json", nil)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(p.Notes, "\n"), "evaluated")
		require.Empty(t, p.missing())
		require.Len(t, p.Roles, len(p.Functions))
		short := func(name string) string { return hash.ReplaceAllString(strings.TrimPrefix(name, stack+"-"), "") }
		resources := map[string]string{}
		for _, table := range p.Tables {
			arn := iam.ARN("dynamodb", "table/"+table.Name)
			resources[short(table.Name)+".Arn"] = arn
			resources[short(table.Name)+".Arn/index/open"] = arn + "/index/open"
			resources[short(table.Name)+".StreamArn"] = arn + "/stream/local"
		}
		for _, q := range p.Queues {
			resources[short(q.Name)+".Arn"] = iam.ARN("sqs", q.Name)
		}
		for _, topic := range p.Topics {
			resources[short(topic.Name)] = iam.ARN("sns", topic.Name)
		}
		for _, f := range p.Functions {
			role := p.Roles[f.Role]
			require.Empty(t, role.NotEvaluated)
			for name, arn := range resources {
				for action := range actions {
					d := role.Allows(iam.Request{Action: action, Resource: arn})
					require.NotEqual(t, iam.AsFar, d.Outcome)
					if d.Granted() {
						got[short(f.Role)+" on "+name+": "+action] = true
					}
				}
			}
		}
	}
	require.Equal(t, wanted, got)
}

// permissions replaces the role of shop, and adds policies.
const permissions = `Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: charge
      AssumeRolePolicyDocument: {Statement: [{Principal: {AWS: !GetAtt Elsewhere.Color}}]}
      Policies:
        - PolicyName: inline
          PolicyDocument: {Statement: {Effect: Allow, Action: dynamodb:PutItem, Resource: !GetAtt Records.Arn}}
      ManagedPolicyArns:
        - !Sub arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole
        - !Ref Shared
  Attached:
    Type: AWS::IAM::Policy
    Properties:
      Roles: [!Ref Role, imported]
      PolicyDocument:
        Statement:
          - !If [Never, {Effect: Allow, Action: "*", Resource: "*"}, !Ref AWS::NoValue]
          - {Effect: Allow, Action: dynamodb:GetItem, Resource: [!GetAtt Records.Arn, !Ref AWS::NoValue]}
          - {Effect: Allow, Action: dynamodb:DeleteItem, Resource: !GetAtt Elsewhere.Color}
          - Effect: Allow
            Action: dynamodb:Query
            Resource: !Join ["/", [!GetAtt Records.Arn, index, "*"]]
            Condition: {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": !GetAtt Elsewhere.Color}}
  Own:
    Type: AWS::IAM::RolePolicy
    Properties:
      RoleName: !Ref Role
      PolicyDocument: {Statement: [{Effect: Deny, Action: dynamodb:*, NotResource: !Sub "${Records.Arn}*"}]}
  Shared:
    Type: AWS::IAM::ManagedPolicy
    Properties:
      PolicyDocument:
        Statement: [{Effect: Allow, Action: sqs:SendMessage, Resource: !Sub "arn:aws:sqs:*:${AWS::AccountId}:*"}]
  Broken: {Type: AWS::IAM::Policy, Properties: {Roles: [other], PolicyDocument: {Statement: [{Effect: Allow}]}}}
  Bounded:
    Type: AWS::IAM::Role
    Properties: {PermissionsBoundary: arn:aws:iam::aws:policy/x, ManagedPolicyArns: [arn:aws:iam::aws:policy/Other]}
  Elsewhere: {Type: AWS::S3::Bucket}
`

func TestRoles(t *testing.T) {
	text := strings.Replace(shop, "Role: {Type: AWS::IAM::Role}\n", permissions, 1)
	text = strings.Replace(text, "Resources:\n", "Conditions: {Never: !Equals [a, b]}\nResources:\n", 1)
	p, err := read(t, text, &ReadOptions{Ignore: []string{"AWS::S3::Bucket"}})
	require.NoError(t, err)
	require.Equal(t, []string{"Shop/Attached", "Shop/Broken"}, p.Silent["AWS::IAM::Policy"])
	table := "arn:aws:dynamodb:us-east-1:000000000000:table/Shop-Records"
	for _, tc := range []struct {
		role, action, resource string
		want                   iam.Outcome
	}{
		{"charge", "dynamodb:PutItem", table, iam.Granted},
		{"charge", "dynamodb:GetItem", table, iam.Granted},
		{"charge", "dynamodb:UpdateItem", table, iam.Missing},
		{"charge", "dynamodb:PutItem", table[:len(table)-1], iam.Denied},
		{"charge", "sqs:SendMessage", "arn:aws:sqs:us-east-1:000000000000:dead.fifo", iam.Granted},
		{"charge", "sqs:ReceiveMessage", "arn:aws:sqs:us-east-1:000000000000:dead.fifo", iam.Granted},
		{"charge", "dynamodb:DeleteItem", table, iam.AsFar}, // the resource cannot be evaluated
		{"charge", "dynamodb:Query", table + "/index/open", iam.AsFar},
		{"charge", "dynamodb:Query", table, iam.Missing},
		{"imported", "dynamodb:GetItem", table, iam.Granted},
		{"imported", "dynamodb:PutItem", table, iam.AsFar}, // it may have policies elsewhere
		{"other", "dynamodb:PutItem", table, iam.AsFar},
		{"Shop-Bounded", "dynamodb:PutItem", table, iam.AsFar}, // AWS's policy is not known
	} {
		require.Equal(t, tc.want, p.Roles[tc.role].Allows(iam.Request{Action: tc.action, Resource: tc.resource}).Outcome,
			"%v", tc)
	}
	require.Equal(t, []string{"Shop/Charge: VpcConfig has no effect here",
		"Shop/Attached: a part of its policy is not evaluated: Fn::GetAtt: Shop/Elsewhere (AWS::S3::Bucket) has no " +
			"attribute Color here",
		"Shop/Bounded: PermissionsBoundary is not evaluated",
		"Shop/Broken is no policy: a statement needs an Effect, an Action and a Resource"}, p.Notes)
	require.Equal(t, "pk", p.partitionKey("Shop-Records"))
	require.Empty(t, p.partitionKey("Shop-Other"))
	arn, err := p.stacks[0].attribute("Role", "Arn")
	require.NoError(t, err)
	require.Equal(t, "arn:aws:iam::000000000000:role/charge", arn)
	require.Equal(t, []string{"Shop/FromStream: role charge lacks dynamodb:DescribeStream, dynamodb:GetRecords, " +
		"dynamodb:GetShardIterator, dynamodb:ListStreams on the stream of Shop-Records, so Lambda refuses to create the " +
		"mapping"}, p.missing())
}

// A role of another template may have any policy.
func TestRoleFromOutside(t *testing.T) {
	p, err := read(t, strings.Replace(shop, "!GetAtt Role.Arn", "arn:aws:iam::111122223333:role/theirs", 1), nil)
	require.NoError(t, err)
	require.Equal(t, iam.AsFar, p.Roles["theirs"].Allows(iam.Request{Action: "dynamodb:PutItem", Resource: "x"}).Outcome)
	require.Empty(t, p.missing())
}

// What a function calls and its role does not grant is reported, or denied.
func TestCallsThatAreNotGranted(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"ch_1"}`)
	}))
	defer provider.Close()
	role := `
  Role:
    Type: AWS::IAM::Role
    Properties:
      Policies:
        - PolicyName: Claims
          PolicyDocument: {Statement: {Effect: Allow, Action: "dynamodb:PutItem", Resource: !GetAtt Records.Arn}}
`
	text := strings.NewReplacer("http://provider", provider.URL,
		"Timeout: 20", "Timeout: 20\n      Role: !GetAtt Role.Arn").Replace(till) + role
	for _, deny := range []bool{false, true} {
		t.Run(fmt.Sprint(deny), func(t *testing.T) {
			r, out := startedAs(t, "Till", text, Options{Deny: deny})
			require.Empty(t, r.Ungranted())
			require.Eventually(t, func() bool { // 503 while the store is too slow, or denies
				status, _ := send(t, payment(t, r, "first"))
				return len(r.Ungranted()) > 0 && (status != 503 || deny)
			}, minute, tick, out)
			require.Contains(t, strings.Join(r.Ungranted(), "\n"), "Till/Pay: dynamodb:UpdateItem on table/Till-Records")
			require.Contains(t, strings.Join(r.Ungranted(), "\n"), "not granted by role Till-Role")
			require.NotContains(t, strings.Join(r.Ungranted(), "\n"), "PutItem")
			require.Equal(t, deny, strings.Contains(out.String(), "is not authorized to perform: dynamodb:UpdateItem"), out)
			status, body := send(t, newRequest(t, "POST", r.Endpoints.Functions,
				`{"Statement":"SELECT * FROM \"Till-Records\""}`, "X-Amz-Target: DynamoDB_20120810.ExecuteStatement",
				signedBy(r.front.keyOf("pay"), "dynamodb")))
			require.Equal(t, 200, status, body)
			require.Contains(t, strings.Join(r.Ungranted(), "\n"), "Till/Pay: dynamodb:ExecuteStatement on what it names: "+
				"granted by role Till-Role as far as it is evaluated, which leaves out the request itself: permissions of PartiQL")
		})
	}
}

// Invocations of functions by functions are evaluated too.
func TestInvocationsThatAreNotGranted(t *testing.T) {
	const functions = `
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      Policies:
        - PolicyName: Invoke
          PolicyDocument:
            Statement: {Effect: Allow, Action: "lambda:InvokeFunction", Resource: [!Ref Web, !Ref Prod, !Ref First]}
  From:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60, Role: !GetAtt Role.Arn}
  To:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": ./testdata/shop}
    Properties: {Runtime: provided.al2023, Timeout: 60}
  Web: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !Ref To, AuthType: NONE}}
  First: {Type: AWS::Lambda::Version, Properties: {FunctionName: !Ref To}}
  Prod: {Type: AWS::Lambda::Alias, Properties: {FunctionName: !Ref To, Name: prod}}
`
	r, out := started(t, functions, Options{Deny: true})
	invoke := func(key, to string) (int, string) {
		t.Helper()
		return send(t, newRequest(t, "POST", r.Endpoints.Functions+"/2015-03-31/functions/"+to, `{"x":1}`,
			signedBy(key, "lambda")))
	}
	from := r.front.keyOf("Shop-From")
	for _, to := range []string{"Shop-To/invocations", "Shop-To:prod/invocations", "Shop-To/invocations?Qualifier=1",
		"arn:aws:lambda:us-east-1:000000000000:function:Shop-To/invocations"} {
		status, body := invoke(from, to)
		require.Equal(t, 200, status, "%s: %s", to, body)
	}
	require.Empty(t, r.Ungranted())
	status, body := invoke(AccessKey, "Shop-From/invocations")
	require.Equal(t, 200, status, "operators need no role: %s", body)
	for to, resource := range map[string]string{"Shop-From/invocations": "Shop-From",
		"Shop-To/invocations?Qualifier=live": "Shop-To:live"} {
		status, body := invoke(from, to)
		require.Equal(t, 403, status, body)
		require.Contains(t, body,
			"lambda:InvokeFunction on resource: arn:aws:lambda:us-east-1:000000000000:function:"+resource)
		require.Contains(t, out.String(), "Shop/From: lambda:InvokeFunction on function:"+resource+": not granted by role "+
			"Shop-Role; allow it in a policy, in CDK e.g. function.GrantInvoke(fn)")
	}
}
