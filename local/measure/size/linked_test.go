package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// symbolsOf builds a program and returns what the linker has kept.
func symbolsOf(t *testing.T, pkg string) string {
	command := []string{"build"}
	if pkg == "../../../idem/dynamostore" { // its tests, since no program here asks for units
		command = []string{"test", "-c"}
	}
	bin := filepath.Join(t.TempDir(), "program")
	out, err := exec.CommandContext(t.Context(), "go",
		append(command, "-tags", "lambda.norpc", "-o", bin, pkg)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "go", "tool", "nm", bin).Output()
	require.NoError(t, err)
	return string(out)
}

// The linker leaves out what nothing reaches. A call, a type assertion or an interface too
// many in the store or the engine brings it back into every function.
func TestAHandlerCarriesNothingOfOperatorsOrTransactions(t *testing.T) {
	handler := symbolsOf(t, "./wrapped")
	for program, names := range map[string][]string{
		"../../../lambda/functions/sweeper": {
			"idem/dynamostore.(*AdminStore).", "idem/dynamostore.encodeAudit", "idem/reconcile.",
		},
		"../../../lambda/functions/orders": {
			"idem/dynamostore.(*Tx).", "idem/dynamostore.(*txWrite).", "idem/dynamostore.outboxItem",
			"service/dynamodb.(*Client).TransactWriteItems",
		},
		"../../../lambda/functions/payments": {"idem/emf.", "idem/internal/metric.", "idem/idemhttp.(*laters).",
			"idem/later.StatusOf", "idem/later.Cancel"},
		"../../../idem/cmd/idemctl": {"idem/secrets."},
		"../../../idem/dynamostore": {"idem/dynamostore.askFor"},
	} {
		carries := symbolsOf(t, program)
		for _, name := range names {
			require.True(t, strings.Contains(carries, name), "%s carries %s", program, name)
			require.False(t, strings.Contains(handler, name), "a handler carries %s", name)
		}
	}
}
