package testmain_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/testmain"
)

const envRole = "TESTMAIN_ROLE"

func TestMain(m *testing.M) {
	testmain.Run(m, testmain.Role{Env: envRole, Main: func(value string) error {
		fmt.Print("as ", value)
		if value == "a failure" {
			return errors.New("it failed")
		}
		return nil
	}})
}

func TestCopiesOfTheTestPlayTheirRole(t *testing.T) {
	for role, want := range map[string]string{"a program": "as a program", "a failure": "as a failureit failed\n"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envRole+"="+role)
		out, err := cmd.CombinedOutput()
		require.Equal(t, want, string(out))
		require.Equal(t, role == "a failure", err != nil)
	}
}

func TestProgramsAreCompiledOnce(t *testing.T) {
	path := testmain.Program(t, "./testdata/hello")
	require.Equal(t, path, testmain.Program(t, "./testdata/hello"))
	out, err := exec.Command(path).Output()
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(out))
}
