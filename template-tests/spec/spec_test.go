package spec

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/template-tests/npm"
)

var update = flag.Bool("update", false, "write spec.json anew")

// The extract is what the pinned package says.
func TestExtract(t *testing.T) {
	db, err := os.Open(filepath.Join(npm.Modules(t, "../tools"), "@aws-cdk", "aws-service-spec", "db.json.gz"))
	require.NoError(t, err)
	defer db.Close()
	s, err := Extract(db, Kinds)
	require.NoError(t, err)
	var text strings.Builder
	lines := json.NewEncoder(&text)
	lines.SetIndent("", " ")
	lines.SetEscapeHTML(false)
	require.NoError(t, lines.Encode(s))
	if *update {
		require.NoError(t, os.WriteFile("spec.json", []byte(text.String()), 0o644))
		return
	}
	require.Equal(t, string(extract), text.String(), "run the test with -update and read the difference")
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// requireSaid: the problems say it, or there are none.
func requireSaid(t *testing.T, problems []string, says string) {
	t.Helper()
	require.Equal(t, says == "", len(problems) == 0)
	require.Contains(t, strings.Join(problems, "\n"), says)
}

func TestCheck(t *testing.T) {
	s, err := Load()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		resource string
		says     string
	}{
		"fine":   {`{"Type":"AWS::SQS::Queue","Properties":{"VisibilityTimeout":180,"QueueName":{"Ref":"Q"}}}`, ""},
		"type":   {`{"Type":"AWS::SQS::Queu"}`, `R: the type "AWS::SQS::Queu" is not in the extract`},
		"member": {`{"Type":"AWS::SQS::Queue","Propertys":{}}`, `R: a resource has no member "Propertys"`},
		"name": {`{"Type":"AWS::SQS::Queue","Properties":{"VisibilityTimeOut":180}}`,
			"R.VisibilityTimeOut is not known"},
		"kind": {`{"Type":"AWS::SQS::Queue","Properties":{"VisibilityTimeout":"180"}}`,
			"R.VisibilityTimeout is string 180 instead of integer"},
		"fraction": {`{"Type":"AWS::SQS::Queue","Properties":{"VisibilityTimeout":1.5}}`,
			"R.VisibilityTimeout is float64 1.5 instead of integer"},
		"required": {`{"Type":"AWS::DynamoDB::GlobalTable","Properties":{"KeySchema":[]}}`, "R.Replicas is missing"},
		"nested": {`{"Type":"AWS::DynamoDB::GlobalTable","Properties":{"Replicas":[{"Region":"eu-west-1",` +
			`"PITR":true}]}}`, "R.Replicas[0].PITR is not known"},
		"allowed value": {`{"Type":"AWS::DynamoDB::GlobalTable","Properties":{"Replicas":[],` +
			`"MultiRegionConsistency":"NONE"}}`, `R.MultiRegionConsistency is "NONE" instead of one of`},
	} {
		t.Run(name, func(t *testing.T) {
			problems := s.Check(object(t, `{"Resources":{"R":`+tc.resource+`}}`))
			requireSaid(t, problems, tc.says)
		})
	}
}

func TestReplaced(t *testing.T) {
	s, err := Load()
	require.NoError(t, err)
	const table = `{"Type":"AWS::DynamoDB::GlobalTable","Properties":{"KeySchema":[{"AttributeName":"pk"}],` +
		`"BillingMode":"PAY_PER_REQUEST","Replicas":[]}}`
	before := object(t, `{"Resources":{"T":`+table+`}}`)
	for name, tc := range map[string]struct {
		after string
		says  string
	}{
		"same":    {`{"T":` + table + `}`, ""},
		"billing": {`{"T":` + strings.Replace(table, "PAY_PER_REQUEST", "PROVISIONED", 1) + `}`, ""},
		"key":     {`{"T":` + strings.Replace(table, `"pk"`, `"id"`, 1) + `}`, "T.KeySchema changes"},
		"name": {`{"T":` + strings.Replace(table, `"BillingMode"`, `"TableName":"t","BillingMode"`, 1) + `}`,
			"T.TableName changes"},
		"logical id": {`{"U":` + table + `}`, "T (AWS::DynamoDB::GlobalTable) is gone"},
		"single type": {`{"T":` + strings.Replace(table, "GlobalTable", "Table", 1) + `}`,
			"T becomes a AWS::DynamoDB::Table"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := s.Replaced(before, object(t, `{"Resources":`+tc.after+`}`), "AWS::DynamoDB::GlobalTable")
			requireSaid(t, problems, tc.says)
		})
	}
}
