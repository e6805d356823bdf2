package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Nobody can check the form of a step's result, and the preview says so. Null is no form.
func TestTheFormOfAStepsResultIsNotChecked(t *testing.T) {
	path := t.TempDir() + "/charge.json"
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.interrupted(order.Key("acme", "o-1"))
		b.Clock.Advance(time.Hour)
		args := []string{"release", order.Key("acme", "o-1").ID(), "--reason", "the provider has it", "--dry-run", "-o", "json", "--step", "charge=@" + path}
		for text, says := range map[string]string{
			"null": "is null", " null\n": "is null", "nul": "is not JSON", "": "is not JSON",
		} {
			require.NoError(t, writeFile(path, text))
			code, _, errs := b.run(args...)
			require.Equal(t, exitUsage, code, errs)
			require.Contains(t, errs, says)
		}
		for _, text := range []string{`{"Id":"ch_1"}`, "7", `"null"`, "[null]"} {
			require.NoError(t, writeFile(path, text))
			code, out, errs := b.run(args...)
			require.Equal(t, exitDone, code, errs)
			require.Contains(t, out, "The result of charge is recorded as given, and its form is not checked")
			require.Contains(t, errs, text)
		}
	})
}
