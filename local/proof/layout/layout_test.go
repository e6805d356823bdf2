// Package layout holds the packages to who may import whom.
package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/idem-go/idempotency"

// allowed is what a package may reach besides the standard library: prefixes of
// import paths; those of this module count from its root.
var allowed = map[string][]string{
	"idem/internal/canonical":    {jsonModule},
	"idem/internal/pathtemplate": {},
	"idem/internal/keys":         {},
	"idem/internal/metric":       {notices, protocol, "./idem/schema"},
	"idem/internal/view":         and(reachHTTP, "./idem/outbox", "./idem/schema"),

	"idem/internal/codec": {jsonModule, canonicalForm, fingerprints, protocol},

	"idem/internal/guard": {notices, protocol},

	"idem":                   {jsonModule, canonicalForm, codecs, guards, fingerprints, notices, protocol},
	"idem/later":             reachEngine,
	"idem/fingerprint":       {jsonModule, canonicalForm, protocol},
	"idem/notice":            {protocol},
	"idem/protocol":          {},
	"idem/schema":            {},
	"idem/memstore":          {protocol},
	"idem/casstore":          {jsonModule, protocol},
	"idem/casstore/memtable": {jsonModule, protocol, "./idem/casstore", "./idem/memstore"},
	"idem/pgstore": and(reachEngine, "./idem/casstore", publishing, "./idem/outbox", "./idem/schema", "github.com/jackc",
		"golang.org/x/sync/semaphore", "golang.org/x/text"),
	"idem/redisstore": and(reachEngine, "./idem/casstore", "github.com/valkey-io/valkey-go", "golang.org/x/sys/cpu"),
	"idem/secrets":    {protocol},
	"idem/limit":      {protocol},
	"idem/pause":      {guards, notices, protocol},
	"idem/emf": and(reachEngine, "./idem/internal/metric", "./idem/schema",
		"github.com/aws/aws-lambda-go/lambdacontext"),
	"idem/otelidem": and(reachEngine, "./idem/internal/metric", "./idem/schema", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/auto/sdk", "github.com/cespare/xxhash", "github.com/go-logr"),
	"idem/reconcile": and(reachEngine, "./idem/outbox", "./idem/schema", "github.com/sony/gobreaker/v2",
		"golang.org/x/sync/errgroup"),
	"idem/reconcile/ledger": {protocol, "./idem/schema"},
	"idem/console": and(reachHTTP, "./idem/internal/view", "./idem/reconcile", "./idem/outbox", "./idem/schema",
		"github.com/sony/gobreaker/v2", "golang.org/x/sync/errgroup"),
	"idem/dynamostore": and(reachEngine, publishing, "./idem/outbox", "./idem/schema", "github.com/aws/aws-sdk-go-v2",
		"github.com/aws/smithy-go", "golang.org/x/sync"),
	"idem/kmsseal": {protocol, "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
	"idem/outbox":  {"./idem/schema"},

	"idem/internal/publish":  {"./idem/outbox", "./idem/schema"},
	"idem/outbox/outboxtest": {"./idem/outbox", "./idem/schema", protocol, "github.com/stretchr/testify", testifyNeeds},

	"idem/outbox/internal/awsbatch": {"./idem/outbox", "./idem/schema", "github.com/aws/smithy-go"},

	"idem/outbox/sqssender": {"./idem/outbox", "./idem/schema", awsBatches, "github.com/aws/aws-sdk-go-v2",
		"github.com/aws/smithy-go"},
	"idem/outbox/snssender": {"./idem/outbox", "./idem/schema", awsBatches, "github.com/aws/aws-sdk-go-v2",
		"github.com/aws/smithy-go"},
	"idem/outbox/eventbridgesender": {"./idem/outbox", "./idem/schema", awsBatches, "github.com/aws/aws-sdk-go-v2",
		"github.com/aws/smithy-go"},
	"idem/idemhttp":        and(reachPaths, "github.com/dunglas/httpsfv"),
	"idem/storetest":       and(reachEngine, "github.com/stretchr/testify", testifyNeeds),
	"idem/internal/sim":    simulator,
	"idem/idemtest":        and(simulator, "./idem/internal/sim", "github.com/stretchr/testify", testifyNeeds),
	"lambda":               wrappers,
	"lambda/sqsvisibility": queueSide,
	"lambda/sqsfailures":   queueSide,
	"lambda/sweeping": and(reachEngine, "./idem/schema", publishing, "./idem/outbox", awsBatches,
		"./idem/outbox/sqssender", "./idem/dynamostore", "./idem/emf", "./idem/internal/metric", "./idem/reconcile",
		"github.com/aws/aws-lambda-go", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go",
		"github.com/sony/gobreaker/v2", "golang.org/x/sync"),
	"lambda/comparing": and(reachEngine, "./idem/schema", publishing, "./idem/outbox", "./idem/dynamostore", "./idem/emf",
		"./idem/internal/metric", "./idem/reconcile/ledger", "github.com/aws/aws-lambda-go",
		"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go", "golang.org/x/sync"),
	"idem/idemhttp/coverage": and(reachPaths, "./idem/idemhttp", "github.com/dunglas/httpsfv",
		"github.com/getkin/kin-openapi", "github.com/go-openapi", "github.com/oasdiff",
		"github.com/santhosh-tekuri/jsonschema", "golang.org/x/text"),
	"infra": {"./idem/schema", "./infra/internal/quiet", "github.com/aws/aws-cdk-go", "github.com/aws/constructs-go",
		"github.com/aws/jsii-runtime-go", "github.com/cdklabs", "github.com/Masterminds/semver"},
	"events": {},

	"template-tests/cloud": {},
	"infra/cost":           {},
}

const (
	jsonModule   = "github.com/go-json-experiment/json"
	testifyNeeds = "go.yaml.in/yaml"

	canonicalForm = "./idem/internal/canonical"
	guards        = "./idem/internal/guard"
	codecs        = "./idem/internal/codec"
	laters        = "./idem/later"
	awsBatches    = "./idem/outbox/internal/awsbatch"
	pathTemplates = "./idem/internal/pathtemplate"
	publishing    = "./idem/internal/publish"
	protocol      = "./idem/protocol"
	fingerprints  = "./idem/fingerprint"
	notices       = "./idem/notice"
)

var (
	// reachEngine is what a package reaches with the engine, reachPaths with routes as well.
	reachEngine = []string{jsonModule, canonicalForm, codecs, guards, "./idem", fingerprints, notices, protocol}
	reachPaths  = and(reachEngine, pathTemplates, laters, "./idem/internal/keys")
	// reachHTTP is what a package reaches with idemhttp.
	reachHTTP = and(reachPaths, "./idem/idemhttp", "github.com/dunglas/httpsfv")
	wrappers  = and(reachPaths, "./idem/idemhttp", "./idem/schema", "github.com/dunglas/httpsfv",
		"github.com/aws/aws-lambda-go/events", "github.com/aws/aws-lambda-go/lambdacontext",
		"github.com/aws/aws-lambda-go/lambda/messages")
	// queueSide is what speaks to SQS for the wrappers.
	queueSide = and(wrappers, "./lambda", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go")
)

// simulator is what runs a world: the engine with its stores and its sweep.
var simulator = and(reachEngine, "./idem/memstore", "./idem/outbox", "./idem/reconcile", "./idem/schema",
	"github.com/sony/gobreaker/v2", "golang.org/x/sync/errgroup")

func and(list []string, more ...string) []string { return slices.Concat(list, more) }

// handlerSide are the packages that a user's handler reaches.
var handlerSide = []string{"idem/internal/canonical", "idem/internal/codec", "idem/internal/guard", "idem/later",
	"idem/internal/pathtemplate", "idem/internal/keys", "idem/internal/metric", "idem/internal/publish", "idem",
	"idem/emf", "idem/otelidem",
	"idem/fingerprint", "idem/notice", "idem/protocol", "idem/schema", "idem/secrets", "idem/memstore", "idem/limit",
	"idem/casstore", "idem/pgstore", "idem/redisstore", "idem/pause", "idem/dynamostore",
	"idem/outbox", "idem/idemhttp", "lambda", "lambda/sqsvisibility", "lambda/sqsfailures", "lambda/sweeping",
	"lambda/comparing", "idem/reconcile", "idem/reconcile/ledger", "idem/kmsseal"}

type listed struct {
	ImportPath string
	Standard   bool
	Deps       []string
	Imports    []string
}

func list(t *testing.T, args ...string) map[string]listed {
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Deps,Imports"}, args...)...).Output()
	require.NoError(t, err)
	all := map[string]listed{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else {
			require.NoError(t, err)
		}
		all[p.ImportPath] = p
	}
}

func TestPackagesReachOnlyWhatTheyMay(t *testing.T) {
	all := list(t, "-deps", module+"/...")
	for pkg, may := range allowed {
		p, ok := all[module+"/"+pkg]
		require.True(t, ok, "there is no package %s: correct the table", pkg)
		for _, dep := range p.Deps {
			if all[dep].Standard {
				continue
			}
			ok := slices.ContainsFunc(may, func(prefix string) bool {
				if own, found := strings.CutPrefix(prefix, "./"); found {
					return dep == module+"/"+own
				}
				return dep == prefix || strings.HasPrefix(dep, prefix+"/")
			})
			require.True(t, ok, "%s reaches %s, which the table does not allow", pkg, dep)
		}
	}
}

func TestHandlersReachNoTestCode(t *testing.T) {
	all := list(t, "-deps", module+"/...")
	for path, p := range all {
		program := strings.HasPrefix(path, module+"/lambda/functions/") || strings.HasPrefix(path, module+"/idem/cmd/")
		if !program && !slices.Contains(handlerSide, strings.TrimPrefix(path, module+"/")) {
			continue
		}
		for _, dep := range p.Deps {
			for _, no := range []string{"testing", "github.com/stretchr/testify", "github.com/aws/aws-cdk-go"} {
				require.False(t, dep == no || strings.HasPrefix(dep, no+"/"), "%s reaches %s", path, dep)
			}
		}
	}
}

// TestFoldersPointOneWay: nothing else imports local. Its stand-ins for AWS import no commands and tests,
// and its commands no tests.
func TestFoldersPointOneWay(t *testing.T) {
	local := module + "/local"
	under := func(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
	for path, p := range list(t, module+"/...") {
		for _, imported := range p.Imports {
			require.False(t, under(imported, local) && !under(path, local), "%s imports %s", path, imported)
			for _, way := range []struct{ from, to string }{
				{"/aws", "/cmd"}, {"/aws", "/proof"}, {"/aws", "/measure"}, {"/cmd", "/proof"}, {"/cmd", "/measure"},
			} {
				require.False(t, under(path, local+way.from) && under(imported, local+way.to), "%s imports %s", path, imported)
			}
		}
	}
}

const engine = "../../../idem"

// The order is the one that the design draws: a file uses what is declared on its own line or below.
func TestFilesOfTheEngineUseWhatIsBelowThem(t *testing.T) {
	level := drawn(t)
	var broken []string
	files := map[string]bool{}
	for _, arrow := range arrows(t, files) {
		from, to, _ := strings.Cut(arrow, " -> ")
		to, _, _ = strings.Cut(to, ":")
		if level[to] < level[from] {
			broken = append(broken, arrow)
		}
	}
	require.Empty(t, broken, "move what is used down, or the file that uses it up, in the list of idem/DESIGN.md")
	require.ElementsMatch(t, slices.Collect(maps.Keys(files)), slices.Collect(maps.Keys(level)),
		"the list of idem/DESIGN.md and the files of the package")
}

// drawn reads the list of the design: the line of each file, counted from the top.
func drawn(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine, "DESIGN.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "## The engine's files\n")
	require.True(t, found)
	_, rest, found = strings.Cut(rest, "\n```text\n")
	require.True(t, found)
	list, _, found := strings.Cut(rest, "\n```\n")
	require.True(t, found)
	level := map[string]int{}
	for n, line := range strings.Split(list, "\n") {
		for _, file := range strings.Fields(line)[1:] {
			require.NotContains(t, level, file, "a file has one place")
			level[file] = n
		}
	}
	return level
}

// arrows lists which file uses which declarations of another one, and collects the files that declare something.
func arrows(t *testing.T, declaring map[string]bool) []string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range sources(t) {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
		if len(f.Decls) > 0 {
			declaring[stem(path)] = true
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := conf.Check(module+"/idem", fset, files, info)
	require.NoError(t, err)
	seen := map[string]bool{}
	for id, used := range info.Uses {
		from, to := stem(fset.Position(id.Pos()).Filename), stem(fset.Position(used.Pos()).Filename)
		if used.Pkg() == pkg && from != to {
			seen[fmt.Sprintf("%s -> %s: %s", from, to, used.Name())] = true
		}
	}
	require.Greater(t, len(seen), 500, "the arrows are there")
	return slices.Sorted(maps.Keys(seen))
}

// sources lists the package's files without its tests.
func sources(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(engine, "*.go"))
	require.NoError(t, err)
	return slices.DeleteFunc(paths, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// A feature that needs more than this belongs into a package of its own, around the Store or around Execute.
func TestTheEngineStaysSmall(t *testing.T) {
	paths := sources(t)
	lines := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines += bytes.Count(text, []byte("\n"))
	}
	require.LessOrEqual(t, len(paths), 45, "files of package idem")
	require.LessOrEqual(t, lines, 5500, "lines of package idem: see \"The rule\" in idem/DESIGN.md")
}

func stem(path string) string { return strings.TrimSuffix(filepath.Base(path), ".go") }
