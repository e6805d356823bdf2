package queue

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"

	"github.com/idem-go/idempotency/internal/child"
	"github.com/idem-go/idempotency/internal/npm"
)

// oldestNode is the oldest major release that the packages run on.
const oldestNode = 20

var nodeVersion = regexp.MustCompile(`(?m)^v(\d+)\.`)

// findNode returns the node on PATH if it is new enough.
func findNode(ctx context.Context) (string, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not on PATH; " + npm.InstallNode)
	}
	version, err := child.Version(ctx, path, "--version", nodeVersion)
	switch {
	case ctx.Err() != nil:
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w; %s", err, npm.InstallNode)
	case version < oldestNode:
		return "", fmt.Errorf("%s is Node.js %d; %s", path, version, npm.InstallNode)
	}
	return path, nil
}
