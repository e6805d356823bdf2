package childtest

import (
	"os"
	"testing"
)

// EnvRequire set to 1 makes a test fail that would be skipped because it has no server.
const EnvRequire = "IDEM_REQUIRE_DYNAMODB"

// Need returns the result of start. If start fails, the test is skipped with the reason, or
// fails if [EnvRequire] is 1. Call it from the test's own goroutine.
func Need[T any](tb testing.TB, what string, start func() (T, error)) T {
	tb.Helper()
	got, err := start()
	switch {
	case err == nil:
	case os.Getenv(EnvRequire) == "1":
		tb.Fatalf("%s=1 and there is no %s: %v", EnvRequire, what, err)
	default:
		tb.Skipf("no %s (with %s=1 this is a failure): %v", what, EnvRequire, err)
	}
	return got
}
