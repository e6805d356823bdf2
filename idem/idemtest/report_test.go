package idemtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemtest"
)

// failing is a test whose failures are looked at.
type failing struct {
	testing.TB
	name, said string
}

func (*failing) Helper()                           {}
func (f *failing) Name() string                    { return f.name }
func (f *failing) Errorf(format string, as ...any) { f.said += fmt.Sprintf(format, as...) + "\n" }

func TestGolden(t *testing.T) {
	t.Setenv("IDEM_UPDATE", "")
	file := filepath.Join(t.TempDir(), "testdata", "order.txt")
	golden := func(r *idemtest.Report) string {
		f := &failing{name: "TestOrder/of a book (new)"}
		r.Golden(f, file)
		return f.said
	}
	charge := scenario(once, func(ctx context.Context, s shop) (string, error) {
		return "charged", permanent(s.bank().Do(ctx, "charge", ""))
	})
	r := idemtest.Explore(t, charge)
	const command = `IDEM_UPDATE=1 go test -run '^TestOrder$/^of a book \(new\)$'`
	said := golden(r)
	require.Contains(t, said, file)
	require.Contains(t, said, "Write the file: "+command)

	t.Setenv("IDEM_UPDATE", "1")
	require.Empty(t, golden(r))
	t.Setenv("IDEM_UPDATE", "")
	require.Empty(t, golden(r))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, r.String(), string(text))
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(strings.ReplaceAll(strings.ReplaceAll(r.String(), "  ", "   "), "\n", "\r\n"))
	require.Empty(t, golden(r), "columns have other widths, and lines other ends")

	// The file has a line with another cell, has a line twice, and lacks one.
	lines := strings.SplitAfter(r.String(), "\n")
	refused, lost := lines[2], lines[3]
	write(strings.Join(append([]string{lines[0], lines[1], strings.Replace(refused, "completed", "failed", 1),
		lines[1]}, lines[4:]...), ""))
	said = golden(r)
	require.Contains(t, said, "a +:\n  "+lines[0]+"- "+strings.Replace(refused, "completed", "failed", 1)+"- "+lines[1]+
		"+ "+refused+"+ "+lost+"If")
	require.Contains(t, said, "write the file: "+command+"\n")
}

// A table of a handler with a mistake is no golden file.
func TestGoldenOfAMistake(t *testing.T) {
	t.Setenv("IDEM_UPDATE", "1")
	file := filepath.Join(t.TempDir(), "order.txt")
	f := &failing{name: "TestOrder"}
	r := idemtest.ReportOf(t, scenario(repeat, func(ctx context.Context, s shop) (string, error) {
		return "charged", permanent(s.bank().Do(ctx, "charge", ""))
	}))
	r.Golden(f, file)
	require.Empty(t, f.said)
	require.NoFileExists(t, file)
}
