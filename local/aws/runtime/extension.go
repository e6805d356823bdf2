package runtime

import (
	"encoding/json"
	"net/http"
)

const (
	extensionPrefix = "/2020-01-01/extension"

	headerExtensionID = "Lambda-Extension-Identifier"
)

// serveRegister accepts an extension without events. lambda.WithEnableSIGTERM of
// aws-lambda-go registers one to get SIGTERM before SIGKILL.
func (i *instance) serveRegister(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	i.terminable = true
	i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(headerExtensionID, randomUUID())
	json.NewEncoder(w).Encode(map[string]string{
		"functionName": i.pool.function.Name, "functionVersion": "$LATEST", "handler": "bootstrap",
	})
}

// serveExtensionNext never answers: there are no events.
func (i *instance) serveExtensionNext(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
