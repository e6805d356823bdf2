package templatetests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/template-tests/npm"
)

const rulesFile = "rules/idempotency.guard"

// guard is the cfn-guard program. The test is skipped where there is none.
func guard(t *testing.T) string {
	t.Helper()
	system, machine := map[string]string{"linux": "ubuntu", "darwin": "macos"}[runtime.GOOS],
		map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if system == "" || machine == "" {
		t.Skipf("the npm package has no cfn-guard for %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	return filepath.Join(npm.Modules(t, "tools"), "@cdklabs", "cdk-validator-cfnguard", "bin", system,
		machine, "cfn-guard")
}

// broken are the rules that the template breaks, and what cfn-guard says.
func broken(t *testing.T, program string, tt template) ([]string, string) {
	t.Helper()
	text, err := json.Marshal(tt)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "template.json")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	said, err := exec.Command(program, "validate", "-r", rulesFile, "-d", file, "--show-summary", "all").CombinedOutput()
	var rules []string
	for _, m := range regexp.MustCompile(`(?m)^idempotency\.guard/(\w+) +FAIL$`).FindAllStringSubmatch(string(said), -1) {
		rules = append(rules, m[1])
	}
	if err == nil {
		require.Empty(t, rules, "%s", said)
		require.Contains(t, string(said), "Status = PASS")
	} else {
		require.NotEmpty(t, rules, "%s", said)
	}
	return rules, string(said)
}

func TestRules(t *testing.T) {
	program := guard(t)
	for name, tt := range map[string]template{"payments-api": withDefaults(t).payments,
		"orders-worker": withDefaults(t).orders} {
		rules, said := broken(t, program, tt)
		require.Empty(t, rules, "%s: %s", name, said)
	}
}

// Each rule fails where it is broken.
func TestRulesFail(t *testing.T) {
	program := guard(t)
	first := func(tt template, kind string, path ...any) map[string]any {
		ids := namesOf(tt, kind)
		require.NotEmpty(t, ids)
		m, _ := tt.property(kind, ids[0], path...).(map[string]any)
		return m
	}
	breaks := map[string]func(payments, orders template){
		"tables_outlive_their_stack": func(p, _ template) {
			for _, r := range p.resources(tables) {
				r["DeletionPolicy"] = "Delete"
			}
		},
		"queues_of_people_outlive_their_stack": func(p, _ template) {
			for _, r := range p.resources(queued) {
				delete(r, "DeletionPolicy")
			}
		},
		"records_expire":        func(p, _ template) { first(p, tables, "TimeToLiveSpecification")["AttributeName"] = "ttl" },
		"records_have_a_stream": func(p, _ template) { delete(first(p, tables), "StreamSpecification") },
		"functions_know_their_timeout": func(p, _ template) {
			delete(first(p, functions, "Environment", "Variables"), schema.EnvFunctionTimeout)
		},
		"functions_are_go_on_arm":      func(_, o template) { first(o, functions)["Architectures"] = []any{"x86_64"} },
		"failed_messages_are_reported": func(_, o template) { delete(first(o, mappings), "FunctionResponseTypes") },
		"queues_are_encrypted":         func(_, o template) { delete(first(o, queued), "SqsManagedSseEnabled") },
		"permissions_name_their_resources": func(_, o template) {
			at(first(o, "AWS::IAM::Policy", "PolicyDocument")["Statement"], 0).(map[string]any)["Resource"] = "*"
		},
		"logs_end": func(p, _ template) { delete(first(p, "AWS::Logs::LogGroup"), "RetentionInDays") },
	}
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^rule (\w+)`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := withDefaults(t).clone(t)
			require.Contains(t, breaks, name, "no way to break the rule is written down")
			breaks[name](s.payments, s.orders)
			one, _ := broken(t, program, s.payments)
			two, _ := broken(t, program, s.orders)
			require.Equal(t, []string{name}, slices.Concat(one, two))
		})
	}
}
