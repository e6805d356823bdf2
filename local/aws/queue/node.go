package queue

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/idem-go/idempotency/local/aws/npm"
)

// oldestNode is the oldest major release that the packages run on.
const oldestNode = 20

// findNode returns the node on PATH if it is new enough.
func findNode(ctx context.Context) (string, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not on PATH; " + npm.InstallNode)
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s does not work: node --version: %w: %s; %s", path, err, firstLine(string(out)), npm.InstallNode)
	}
	version, err := parseNodeVersion(string(out))
	if err != nil {
		return "", fmt.Errorf("%s: %w; %s", path, err, npm.InstallNode)
	}
	if version < oldestNode {
		return "", fmt.Errorf("%s is Node.js %d; %s", path, version, npm.InstallNode)
	}
	return path, nil
}

var nodeVersion = regexp.MustCompile(`(?m)^v(\d+)\.`)

// parseNodeVersion reads the major release out of what node --version prints.
func parseNodeVersion(out string) (int, error) {
	m := nodeVersion.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("node --version printed no version: %s", firstLine(out))
	}
	return strconv.Atoi(m[1])
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
