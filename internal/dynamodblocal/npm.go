package dynamodblocal

import (
	_ "embed"

	"github.com/idem-go/idempotency/internal/npm"
)

// The lock file leaves out what the package depends on: only its jar is used.
var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// Package is the npm package that holds DynamoDB Local 1.25.1. AWS's licence
// allows using DynamoDB Local and not passing it on, so it is fetched.
var Package = npm.Package{
	Name: "amplify-dynamodb-simulator", Version: "2.9.30", Download: "57 MB",
	Manifest: manifest, Lock: lockFile,
}

// jarDir is DynamoDB Local's folder in the installed package.
const jarDir = "node_modules/amplify-dynamodb-simulator/emulator"
