package faultnet

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

const (
	ofDynamoDB = "com.amazonaws.dynamodb.v20120810#"
	ofAWS      = "com.amazon.coral.availability#"
	ofService  = "com.amazon.coral.service#"
	conflicts  = "Transaction is ongoing for the item"
)

// DynamoDB's own refusals, in its own words. AccessDenied is one that SDKs do not try
// again after.
var (
	Throttle = refuse(http.StatusBadRequest, ofAWS+"ThrottlingException",
		"Rate of requests exceeds the allowed throughput.")
	ServerError  = refuse(http.StatusInternalServerError, ofDynamoDB+"InternalServerError", "Internal server error")
	AccessDenied = refuse(http.StatusBadRequest, ofService+"AccessDeniedException",
		"User is not authorized to perform this action")
)

func refuse(status int, code, message string) Fault {
	return func(*Call) (*Reply, error) {
		return refusal(status, map[string]any{"__type": code, "message": message}), nil
	}
}

// Conflict refuses a write as DynamoDB does while another transaction has the item. Of a
// transaction, the network's number for the call decides which of its items are hit.
func Conflict(c *Call) (*Reply, error) {
	if c.Operation != "TransactWriteItems" {
		return refuse(http.StatusBadRequest, ofDynamoDB+"TransactionConflictException", conflicts)(c)
	}
	var in struct{ TransactItems []json.RawMessage }
	if err := c.Read(&in); err != nil || len(in.TransactItems) == 0 {
		return refuse(http.StatusBadRequest, ofService+"SerializationException", "no transaction")(c)
	}
	n := len(in.TransactItems)
	codes := slices.Repeat([]string{"None"}, n)
	codes[c.Number%n], codes[c.Number/n%n] = "TransactionConflict", "TransactionConflict"
	var reasons []map[string]string
	for _, code := range codes {
		reason := map[string]string{"Code": code}
		if code != "None" {
			reason["Message"] = conflicts
		}
		reasons = append(reasons, reason)
	}
	return refusal(http.StatusBadRequest, map[string]any{
		"__type": ofDynamoDB + "TransactionCanceledException",
		"Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [" +
			strings.Join(codes, ", ") + "]",
		"CancellationReasons": reasons,
	}), nil
}

func refusal(status int, body map[string]any) *Reply {
	text, _ := json.Marshal(body) // texts cannot fail
	return &Reply{Status: status, Body: text, Header: http.Header{
		"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"refused"},
	}}
}
