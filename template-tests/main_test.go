package templatetests

import (
	"fmt"
	"os"
	"testing"

	"github.com/aws/jsii-runtime-go"
)

// keptFolder is for what several tests share; it goes when they are over.
var keptFolder string

// TestMain ends jsii's process once, after all tests: its start costs seconds.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer jsii.Close()
	folder, err := os.MkdirTemp("", "idem-templates-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	keptFolder = folder
	return m.Run()
}
