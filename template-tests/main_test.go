package templatetests

import (
	"os"
	"testing"

	"github.com/aws/jsii-runtime-go"
)

// TestMain starts jsii's process once and ends it once: its start costs seconds.
func TestMain(m *testing.M) {
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}
