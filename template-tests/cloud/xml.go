package cloud

import (
	"encoding/xml"
	"net/http"
	"strings"
)

// element is XML, with everything in it escaped.
type element string

// tag is an element of text.
func tag(name, text string) element {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return element("<" + name + ">" + b.String() + "</" + name + ">")
}

// group is an element of elements.
func group(name string, content ...element) element {
	var b strings.Builder
	for _, c := range content {
		b.WriteString(string(c))
	}
	return element("<" + name + ">" + b.String() + "</" + name + ">")
}

// list is an element with a member for each entry.
func list(name string, entries ...[]element) element {
	var all []element
	for _, e := range entries {
		all = append(all, group("member", e...))
	}
	return group(name, all...)
}

func answer(w http.ResponseWriter, action string, content ...element) {
	write(w, http.StatusOK, group(action+"Response", group(action+"Result", content...),
		group("ResponseMetadata", tag("RequestId", "request"))))
}

func fail(w http.ResponseWriter, code, message string) {
	write(w, http.StatusBadRequest, group("ErrorResponse",
		group("Error", tag("Type", "Sender"), tag("Code", code), tag("Message", message)), tag("RequestId", "request")))
}

func write(w http.ResponseWriter, status int, content element) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(content))
}
