package queue

import (
	_ "embed"

	"github.com/idem-go/idempotency/internal/npm"
)

// package.json holds back one package whose latest release needs Node.js 22.
var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// Package is the npm package that is run.
var Package = npm.Package{Name: "fauxqs", Version: "1.9.2", Download: "43 MB", Manifest: manifest, Lock: lockFile}
