package templatetests

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// stacks are the example's, synthesized with these settings into a folder.
type stacks struct {
	folder           string
	payments, orders template
	problems         []infra.Problem
}

// synthStacks builds the functions only if build is set: it takes most of the time.
func synthStacks(t *testing.T, folder string, context map[string]string, build bool) stacks {
	t.Helper()
	app := infra.NewApp(&folder, context)
	if !build {
		// As the command line says it for commands that need no code.
		app.Node().SetContext(ptr("aws:cdk:bundling-stacks"), []string{})
	}
	settings, err := infra.SettingsOf(app)
	require.NoError(t, err)
	payments, orders := infra.NewStacks(app, settings)
	assembly := app.Synth(nil)
	one := func(s awscdk.Stack) template {
		return assembly.GetStackByName(s.StackName()).Template().(map[string]any)
	}
	return stacks{folder, one(payments.Stack), one(orders.Stack), infra.Problems(app)}
}

var defaultStacks struct {
	once   sync.Once
	stacks stacks
}

// withDefaults are the stacks as make synth makes them but for the provider, once for all tests: do not change them.
func withDefaults(t *testing.T) stacks {
	t.Helper()
	defaultStacks.once.Do(func() {
		defaultStacks.stacks = synthStacks(t, filepath.Join(keptFolder, "default"),
			map[string]string{"provider": "https://provider.example"}, true)
	})
	return defaultStacks.stacks
}

func TestStacks(t *testing.T) {
	got := withDefaults(t)
	require.Empty(t, got.problems)
	found, err := filepath.Glob(filepath.Join(got.folder, "asset.*", "bootstrap"))
	require.NoError(t, err)
	require.Len(t, found, 6) // both relays are one program
}

// The orders' function, relay and sweeper neither know the table of the payments' records nor may they read it:
// the topic of alarms is all that the payments' stack exports.
func TestOrdersCannotReadPaymentsRecords(t *testing.T) {
	var exported []string
	for _, o := range withDefaults(t).payments["Outputs"].(map[string]any) {
		if at(o, "Export", "Name") != nil {
			exported = append(exported, texts(at(o, "Value"))...)
		}
	}
	require.Equal(t, []string{"Alarms"}, exported)
}

func TestStacksWithSettings(t *testing.T) {
	got := synthStacks(t, t.TempDir(), map[string]string{
		"authorizer": "none", "account": "111111111111", "region": "eu-west-1", "prefix": "test-",
		"provider": "https://provider.example", "tracing": "true",
	}, false)
	require.Len(t, got.problems, 1)
	says(t, got.problems, false, "idem:open-api")
	payments := func(path ...any) any { return got.payments.property("AWS::Lambda::Function", "Payments", path...) }
	require.Equal(t, "none", payments("Environment", "Variables", "PAYMENTS_TENANT"))
	for _, r := range got.payments.resources("AWS::ApiGatewayV2::Route") {
		require.Equal(t, "NONE", at(r, "Properties", "AuthorizationType"))
	}
	require.Equal(t, map[string]any{"Mode": "Active"}, payments("TracingConfig"))
	require.NotEmpty(t, got.payments.resources("AWS::Lambda::Permission"))
	found, err := filepath.Glob(filepath.Join(got.folder, "asset.*", "bootstrap"))
	require.NoError(t, err)
	require.Len(t, found, 1, "one stand-in for all functions")
	stand, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.Contains(t, string(stand), "not built")
}

func TestStacksBehindTokens(t *testing.T) {
	got := synthStacks(t, t.TempDir(), map[string]string{"authorizer": "jwt", "issuer": "https://issuer.example",
		"audience": "a, b"}, false)
	const authorizer = "AWS::ApiGatewayV2::Authorizer"
	require.Equal(t, map[string]any{"Audience": []any{"a", "b"}, "Issuer": "https://issuer.example"},
		got.payments.property(authorizer, namesOf(got.payments, authorizer)[0], "JwtConfiguration"))
	require.Equal(t, "jwt:sub",
		got.payments.property("AWS::Lambda::Function", "Payments", "Environment", "Variables", "PAYMENTS_TENANT"))
	says(t, got.problems, false, "https://provider.invalid", "-c provider=")
}

func ptr[T any](v T) *T { return &v }

func TestSettingsRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		context map[string]string
		says    []string
	}{
		"authorizer": {map[string]string{"authorizer": "cookie"}, []string{`authorizer is "cookie"`}},
		"no issuer":  {map[string]string{"authorizer": "jwt"}, []string{"issuer is missing", "audience is missing"}},
		"empty audience": {map[string]string{"authorizer": "jwt", "issuer": "https://i", "audience": " ,"},
			[]string{"audience is missing"}},
		"others' issuer": {map[string]string{"issuer": "https://i"},
			[]string{"issuer and audience are for the authorizer jwt"}},
		"others' tenant": {map[string]string{"tenant": "sub"}, []string{`tenant is "sub"`}},
		"half a place":   {map[string]string{"region": "eu-west-1"}, []string{"account and region belong together"}},
		"tracing":        {map[string]string{"tracing": "yes"}, []string{`tracing is "yes"`}},
		"plain provider": {map[string]string{"provider": "http://p"}, []string{`provider is "http://p"`, "https"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := infra.SettingsOf(infra.NewApp(ptr(t.TempDir()), tc.context))
			require.Error(t, err)
			for _, text := range tc.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}
