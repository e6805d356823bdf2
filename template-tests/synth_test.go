package templatetests

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// template is a synthesized CloudFormation template.
type template map[string]any

// synth makes an app with one stack, lets build fill it, and returns its template and what the checks say.
func synth(t *testing.T, build func(awscdk.Stack)) (template, []infra.Problem) {
	t.Helper()
	return synthIn(t, nil, build)
}

func synthIn(t *testing.T, env *awscdk.Environment, build func(awscdk.Stack)) (template, []infra.Problem) {
	t.Helper()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir()), AnalyticsReporting: jsii.Bool(false)})
	stack := awscdk.NewStack(app, jsii.String("Test"), &awscdk.StackProps{Env: env})
	build(stack)
	assembly := app.Synth(nil)
	got, ok := assembly.GetStackByName(stack.StackName()).Template().(map[string]any)
	require.True(t, ok)
	return got, infra.Problems(app)
}

// resources of a type, by logical id.
func (tt template) resources(kind string) map[string]map[string]any {
	found := map[string]map[string]any{}
	all, _ := tt["Resources"].(map[string]any)
	for id, r := range all {
		if m := r.(map[string]any); m["Type"] == kind {
			found[id] = m
		}
	}
	return found
}

// says requires a problem whose message contains every text.
func says(t *testing.T, problems []infra.Problem, isError bool, texts ...string) {
	t.Helper()
	require.NotEmpty(t, problems, "the checks say nothing")
	for _, p := range problems {
		if p.Error == isError && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(p.Message, s) }) {
			return
		}
	}
	require.Failf(t, "no such message", "error=%v with %q in %v", isError, texts, problems)
}

// objection is what the checks say of a stack.
type objection struct {
	build func(awscdk.Stack)
	error bool
	says  []string // none: nothing
}

func refuses(build func(awscdk.Stack), says ...string) objection { return objection{build, true, says} }

func warns(build func(awscdk.Stack), says ...string) objection { return objection{build, false, says} }

func accepts(build func(awscdk.Stack)) objection { return objection{build: build} }

// objects builds the stacks, and requires what the checks say of each.
func objects(t *testing.T, env *awscdk.Environment, all map[string]objection) {
	t.Helper()
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			_, problems := synthIn(t, env, o.build)
			if o.says == nil {
				require.Empty(t, problems)
				return
			}
			says(t, problems, o.error, o.says...)
		})
	}
}
