package provider

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The archive comes from
//
//	npm pack @cdktf/provider-aws@21.22.1
var archive = flag.String("archive", "", "write provider.json again from this `file` of npm's")

// kinds are the resource types in the extract: those that infra/terraform uses.
var kinds = []string{
	"cloudwatch-event-rule", "cloudwatch-event-target", "cloudwatch-log-group", "cloudwatch-metric-alarm",
	"dynamodb-table", "iam-policy", "iam-role", "iam-role-policy", "lambda-event-source-mapping", "lambda-function",
	"lambda-function-event-invoke-config", "lambda-permission", "sqs-queue", "sqs-queue-policy",
}

// TestExtract makes the extract, of a package that is too large to be fetched for each run.
func TestExtract(t *testing.T) {
	if *archive == "" {
		t.Skip("with -archive")
	}
	file, err := os.Open(*archive)
	require.NoError(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	require.NoError(t, err)
	all := map[string]Block{}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		kind := path.Base(path.Dir(header.Name))
		if !slices.Contains(kinds, kind) || path.Base(header.Name) != "index.d.ts" {
			continue
		}
		text, err := io.ReadAll(files)
		require.NoError(t, err)
		all["aws_"+strings.ReplaceAll(kind, "-", "_")] = resource(t, string(text))
	}
	require.Len(t, all, len(kinds))
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("provider.json", append(text, '\n'), 0o644))
}

var (
	declared = regexp.MustCompile(`(?ms)^export interface (\w+)( extends cdktf\.TerraformMetaArguments)? \{\n(.*?)^\}`)
	// member has the name in Terraform, whether it may be left out, and the type.
	member = regexp.MustCompile(`(?s)#(\w+)\}[^#]*?\*/\s+readonly \w+(\??): (.*?);\n`)
	class  = regexp.MustCompile(`(?ms)^export declare class \w+ extends cdktf\.TerraformResource \{\n(.*?)^\}`)
	getter = regexp.MustCompile(`(?m)^    get (\w+)\(\): (?:string|number);`)
	upper  = regexp.MustCompile(`[A-Z]`)
)

func resource(t *testing.T, text string) Block {
	interfaces, root := map[string]string{}, ""
	for _, m := range declared.FindAllStringSubmatch(text, -1) {
		interfaces[m[1]] = m[3]
		if m[2] != "" {
			root = m[1]
		}
	}
	require.NotEmpty(t, root)
	var block func(string) Block
	block = func(name string) Block {
		b := Block{Attributes: map[string]Attribute{}, Blocks: map[string]Block{}}
		for _, m := range member.FindAllStringSubmatch(interfaces[name], -1) {
			kind := strings.TrimSuffix(m[3], " | cdktf.IResolvable")
			of, many := strings.CutSuffix(kind, "[]")
			switch _, nested := interfaces[of]; {
			case nested:
				inner := block(of)
				inner.Single, inner.Required = !many, m[2] == ""
				b.Blocks[m[1]] = inner
			case strings.HasPrefix(kind, "{"):
				b.Attributes[m[1]] = Attribute{"map", m[2] == ""}
			case many:
				b.Attributes[m[1]] = Attribute{"list", m[2] == ""}
			default:
				require.Contains(t, []string{"string", "number", "boolean"}, kind)
				b.Attributes[m[1]] = Attribute{kind, m[2] == ""}
			}
		}
		return b
	}
	b := block(root)
	for _, m := range getter.FindAllStringSubmatch(class.FindString(text), -1) {
		name := upper.ReplaceAllStringFunc(m[1], func(s string) string { return "_" + strings.ToLower(s) })
		b.Exports = append(b.Exports, name)
	}
	slices.Sort(b.Exports)
	return b
}
