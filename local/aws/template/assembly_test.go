package template

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An assembly has the stacks in the order of their deployment, also those of a stage, with their assets.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("manifest.json", `{"artifacts": {
		"Api": {"type": "aws:cloudformation:stack", "dependencies": ["Data", "Api.assets"],
			"properties": {"templateFile": "Api.template.json", "stackName": "shop-api"}},
		"Api.assets": {"type": "cdk:asset-manifest", "properties": {"file": "Api.assets.json"}},
		"Data": {"type": "aws:cloudformation:stack", "properties": {"templateFile": "Data.template.json"}},
		"assembly-Prod": {"type": "cdk:cloud-assembly", "properties": {"directoryName": "assembly-Prod"}},
		"Tree": {"type": "cdk:tree", "properties": {"file": "tree.json"}}}}`)
	write("Api.assets.json", `{"files": {"abc": {"source": {"path": "asset.abc", "packaging": "zip"},
		"destinations": {"current": {"bucketName": "b", "objectKey": "abc.zip"}}}}}`)
	for _, name := range []string{"Api", "Data", "assembly-Prod/Prod"} {
		write(name+".template.json", `{"Resources": {"A": {"Type": "T"}}}`)
	}
	write("assembly-Prod/manifest.json", `{"artifacts": {"Prod": {"type": "aws:cloudformation:stack",
		"properties": {"templateFile": "Prod.template.json"}}}}`)
	stacks, err := Open(dir)
	require.NoError(t, err)
	var names []string
	for _, s := range stacks {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"Data", "shop-api", "Prod"}, names)
	require.Equal(t, map[string]string{"abc.zip": filepath.Join(dir, "asset.abc")}, stacks[1].Assets)

	one, err := Open(filepath.Join(dir, "Api.template.json"))
	require.NoError(t, err)
	require.Equal(t, "Api", one[0].Name)
	require.Equal(t, dir, one[0].Folder)

	for break_, want := range map[string]string{
		"manifest.json":     "manifest.json: unexpected end of JSON input",
		"Api.assets.json":   "Api.assets.json: unexpected end of JSON input",
		"Api.template.json": "Api.template.json: it is no CloudFormation template",
	} {
		kept, err := os.ReadFile(filepath.Join(dir, break_))
		require.NoError(t, err)
		write(break_, "{")
		_, err = Open(dir)
		require.ErrorContains(t, err, want)
		write(break_, string(kept))
	}
	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "name a template, or run cdk synth first")
	_, err = Open(filepath.Join(dir, "assembly-Prod", ".."))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "manifest.json")))
	stacks, err = Open(dir)
	require.NoError(t, err)
	require.Equal(t, "Api", stacks[0].Name, "a folder of templates")
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "is no cloud assembly")
}
