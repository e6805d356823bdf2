package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// response is the client's response.
type response struct {
	status int
	header http.Header
	body   []byte
}

// parseResponse reads a function's answer in payload format 2.0.
func (*Handler) parseResponse(_ Request, answer []byte) (response, error) {
	if !json.Valid(answer) {
		return response{}, errors.New("gateway: the function's response is not JSON")
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(answer, &members) == nil && members["statusCode"] != nil {
		delete(members, "multiValueHeaders")
		return parseMembers(members)
	}
	body := answer
	var text string
	if bytes.HasPrefix(bytes.TrimSpace(answer), []byte{'"'}) && json.Unmarshal(answer, &text) == nil {
		body = []byte(text)
	}
	return response{http.StatusOK, http.Header{"Content-Type": {"application/json"}}, body}, nil
}

func parseMembers(members map[string]json.RawMessage) (response, error) {
	r := response{header: http.Header{}}
	var err error
	if r.status, err = strconv.Atoi(strings.Trim(string(members["statusCode"]), `"`)); err != nil ||
		r.status < 200 || r.status > 599 {
		return r, fmt.Errorf("gateway: statusCode %s of the function's response is not a status from 200 to 599",
			members["statusCode"])
	}
	var headers map[string]json.RawMessage
	var multi map[string][]string
	var cookies []string
	var body string
	var encoded bool
	for _, m := range []struct {
		name string
		into any
	}{{"headers", &headers}, {"multiValueHeaders", &multi}, {"cookies", &cookies}, {"body", &body},
		{"isBase64Encoded", &encoded}} {
		if members[m.name] == nil { // null counts as absent too, since it sets nothing
			continue
		}
		if err := json.Unmarshal(members[m.name], m.into); err != nil {
			return r, fmt.Errorf("gateway: member %q of the function's response: %w", m.name, err)
		}
	}
	for name, raw := range headers {
		var text string
		switch {
		case string(raw) == "null":
			continue
		case raw[0] == '{' || raw[0] == '[':
			return r, fmt.Errorf("gateway: header %q of the function's response is neither text, number nor boolean", name)
		case raw[0] != '"':
			text = string(raw)
		case json.Unmarshal(raw, &text) != nil:
			return r, fmt.Errorf("gateway: header %q of the function's response is not text", name)
		}
		r.header.Set(name, text)
	}
	for _, cookie := range cookies {
		r.header.Add("Set-Cookie", cookie)
	}
	r.body = []byte(body)
	if encoded {
		if r.body, err = base64.StdEncoding.DecodeString(body); err != nil {
			return r, fmt.Errorf("gateway: body of the function's response: %w", err)
		}
	}
	if len(r.body) > 0 && r.header.Get("Content-Type") == "" {
		r.header.Set("Content-Type", "text/plain;charset=UTF-8")
	}
	for name, values := range multi { // they win
		r.header[http.CanonicalHeaderKey(name)] = values
	}
	return r, nil
}

// message is an answer of the service itself.
func message(status int, text string) response {
	body, _ := json.Marshal(map[string]string{"message": text}) // strings cannot fail
	return response{status, http.Header{"Content-Type": {"application/json"}}, body}
}

func (r response) write(w http.ResponseWriter, idHeader, requestID string) {
	header := w.Header()
	for name, values := range r.header {
		// The server counts the length, and the connection is its own.
		if lower := strings.ToLower(name); lower != "content-length" && !slices.Contains(hopByHop, lower) {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if len(r.body) == 0 && header.Get("Content-Type") == "" {
		header["Content-Type"] = nil // do not guess
	}
	header.Set("Content-Length", strconv.Itoa(len(r.body)))
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		header.Del("Content-Length")
	}
	if idHeader != "" && requestID != "" {
		header.Set(idHeader, requestID)
	}
	w.WriteHeader(r.status)
	w.Write(r.body) // a client that has disconnected needs no answer
}
