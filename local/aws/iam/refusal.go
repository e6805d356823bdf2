package iam

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strings"
)

// Refuse answers a call of a function whose request is not granted, as the service does.
func Refuse(w http.ResponseWriter, function string, role Role, q Request, d Decision) {
	service, name, _ := strings.Cut(q.Action, ":")
	action, status, kind := q.Action, http.StatusBadRequest, "application/x-amz-json-1.0"
	switch service { // each writes its actions in its own way
	case "sqs":
		action, status = strings.ToLower(action), http.StatusForbidden
		w.Header().Set("X-Amzn-Query-Error", "AccessDenied;Sender") // the code that SDKs report
	case "lambda":
		status, kind = http.StatusForbidden, "application/json"
		w.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
	case "sns":
		action, status, kind = "SNS:"+name, http.StatusForbidden, "text/xml"
	}
	reason := "because no identity-based policy allows the " + action + " action"
	if d.Outcome == Denied {
		reason = "with an explicit deny"
	}
	message := fmt.Sprintf("User: arn:aws:sts::%s:assumed-role/%s/%s is not authorized to perform: %s on resource: %s %s",
		Account, role.Name, function, action, q.Resource, reason)
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	if service == "sns" {
		fmt.Fprintf(w, `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type>`+
			`<Code>AuthorizationError</Code><Message>%s</Message></Error><RequestId>local</RequestId></ErrorResponse>`,
			html.EscapeString(message))
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazon.coral.service#AccessDeniedException",
		"Message": message})
}
