package child

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Version runs a program with the argument that makes it tell its version, and returns
// the number in the pattern's first group.
func Version(ctx context.Context, path, argument string, pattern *regexp.Regexp) (int, error) {
	out, err := exec.CommandContext(ctx, path, argument).CombinedOutput()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return 0, fmt.Errorf("%s does not work: %s: %w: %s", path, argument, err, said)
	}
	m := pattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s printed no version: %s", path, said)
	}
	return strconv.Atoi(string(m[1]))
}
