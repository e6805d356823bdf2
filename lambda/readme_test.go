package idemlambda

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/stretchr/testify/require"
)

// tableRow finds the row of a table that has the cell, and returns its cells.
func tableRow(t *testing.T, section, cell string) []string {
	t.Helper()
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for _, c := range cells {
			if c == cell {
				return cells
			}
		}
	}
	require.Fail(t, "no row", "the README has no row with %s", cell)
	return nil
}

// The README's tables are the constants.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, readme, found := strings.Cut(string(text), "## Which constructor")
	require.True(t, found)
	sources, rest, _ := strings.Cut(readme, "## When messages are acknowledged")
	acknowledged, back, _ := strings.Cut(rest, "| redelivered |")

	retentions := map[string]time.Duration{
		"SQS": SQSRetention, "SNS": SNSRetention, "EventBridge": EventBridgeRetention, "S3": S3Retention,
		"Kinesis":        KinesisRetention,
		"DynamoDBStream": DynamoDBStreamRetention, "Kafka": KafkaRetention, "Async": AsyncRetention,
		"StepFunctions": StepFunctionsRetention,
		"Wrap":          idem.DefaultRetention,
	}
	require.ElementsMatch(t, append(sourcesInSource(t), "Wrap"), slices.Collect(maps.Keys(retentions)),
		"a source is not in the README's table")
	for constructor, retention := range retentions {
		want := fmt.Sprintf("%d hours", retention/time.Hour)
		if retention > 48*time.Hour {
			want = fmt.Sprintf("%d days", retention/(24*time.Hour))
		}
		require.Contains(t, tableRow(t, sources, "`"+constructor+"`"), want, constructor)
	}

	reasons := reasonsInSource(t)
	require.NotEmpty(t, reasons)
	for _, r := range reasons {
		name := "`" + string(r) + "`"
		require.Equal(t, r.Acknowledges(), strings.Contains(acknowledged, "| "+name+" |"), "%s acknowledges", r)
		require.Equal(t, !r.Acknowledges(), strings.Contains(back, name), "%s is redelivered", r)
	}

	for _, name := range []string{
		schema.EnvFunctionTimeout, schema.EnvQueueBatchSize, schema.EnvQueueRedelivery, schema.EnvQueueRepeat,
	} {
		require.Contains(t, readme, "`"+name+"`")
	}
}

// sourcesInSource are all constructors that make a source, or have a retention.
func sourcesInSource(t *testing.T) []string {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					if source, ok := strings.CutSuffix(n.Names[0].Name, "Retention"); ok && !isFunc && n.Names[0].IsExported() {
						found[source] = true
					}
				case *ast.CallExpr:
					if made, ok := n.Fun.(*ast.Ident); ok && isFunc && (made.Name == "newSource" || made.Name == "newRawSource") &&
						f.Name.Name != made.Name {
						found[f.Name.Name] = true
					}
				}
				return true
			})
		}
	}
	return slices.Collect(maps.Keys(found))
}

// reasonsInSource are all constants of type Reason.
func reasonsInSource(t *testing.T) (all []Reason) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(spec.Type) == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			all = append(all, Reason(text))
		}
		return true
	})
	return all
}
