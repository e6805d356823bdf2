package runtime

import (
	"encoding/json"
	"io"
	"net/http"
)

const (
	extensionPrefix = "/2020-01-01/extension"

	headerExtensionName = "Lambda-Extension-Name"
	headerExtensionID   = "Lambda-Extension-Identifier"
)

// serveRegister accepts an extension without events. lambda.WithEnableSIGTERM of
// aws-lambda-go registers one to get SIGTERM before SIGKILL.
func (i *instance) serveRegister(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Events []string `json:"events"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequestFormat", "the body is not JSON")
		return
	}
	if r.Header.Get(headerExtensionName) == "" {
		refuse(w, http.StatusBadRequest, "Extension.InvalidExtensionName", "the header "+headerExtensionName+" is missing")
		return
	}
	if len(body.Events) > 0 {
		refuse(w, http.StatusForbidden, "Extension.InvalidEventType", "extensions with events are not imitated")
		return
	}
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
