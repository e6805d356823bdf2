package main

import (
	"bytes"
	"encoding/base64"
	"os"

	"github.com/idem-go/idempotency/idem/secrets"
)

// encoded begins a file whose secret is in base64.
const encoded = "base64:"

// secretIn reads an operation's secret from a file, without the line end behind it.
func secretIn(file string) (*secrets.Secret, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, misuse("the operation's secret: %v", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	coded, ok := bytes.CutPrefix(text, []byte(encoded))
	if !ok {
		return secrets.New(text), nil
	}
	key, err := base64.StdEncoding.DecodeString(string(coded))
	if err != nil {
		return nil, misuse("the operation's secret: what %s has after %q is no base64", file, encoded)
	}
	return secrets.New(key), nil
}
