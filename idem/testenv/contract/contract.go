// Package contract is the HTTP contract as one table: what a client sends, what the handler does, and what the client
// gets. Package contracttest runs it: on net/http in the tests of idemhttp, through each gateway in those of lambda,
// and on the wire in local/proof/contract.
package contract

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// Routes are those of the service.
func Routes() idemhttp.Routes {
	return idemhttp.Routes{
		"POST /payments":     {Name: "charge"},
		"PATCH /payments":    {Name: "change"},
		"POST " + RefundPath: {Name: "refund"},
		"POST /transfers":    {Name: "transfer", Repeat: idem.Repeatable},
		"POST /slow":         {Name: "slow", MinTime: time.Hour},
		"POST /login":        idemhttp.Unprotected,
	}
}

// RefundPath is the only route with a parameter, which is called id.
const RefundPath = "/payments/{id}/refunds"

// Headers of a request; they do not count for its fingerprint.
const (
	// VariantHeader chooses one of [Variants].
	VariantHeader = "X-Variant"
	// FirstSentHeader tells a request's age to TooOld.
	FirstSentHeader = "First-Sent"
)

// Names of variants; the empty one is the plain contract.
const (
	NoPrincipal = "principal" // bound to a principal, and there is none
	TooOld      = "tooold"    // refuses what FirstSentHeader calls too old
	Version     = "version"   // another version of the responses
	Wait        = "wait"      // waits for a duplicate
	Small       = "small"     // a store that keeps small responses only
)

// SmallResult is what Small keeps, in bytes.
const SmallResult = 1000

// Variant is how the contract is set up. All variants share one table.
type Variant struct {
	Options   idemhttp.Options
	MaxResult int           // of the store; 0 is its default
	Wait      time.Duration // of the engine
}

// Variants are all variants by name, in a profile.
func Variants(profile idemhttp.Profile) map[string]Variant {
	none := func(context.Context, *idemhttp.Request) (string, error) { return "", nil }
	all := map[string]Variant{
		"":          {},
		NoPrincipal: {Options: idemhttp.Options{Principal: none}},
		TooOld:      {Options: idemhttp.Options{MaxAge: &idemhttp.MaxAge{Header: FirstSentHeader}}},
		Version:     {Options: idemhttp.Options{ResponseVersion: 1}},
		Wait:        {Wait: 15 * time.Second},
		Small:       {MaxResult: SmallResult},
	}
	for name, v := range all {
		v.Options.Profile = profile
		all[name] = v
	}
	return all
}

// Answer is what the handler does.
type Answer struct {
	Status  int         `json:"status,omitempty"`
	Header  http.Header `json:"header,omitempty"`
	Cookies []string    `json:"cookies,omitempty"`
	Body    []byte      `json:"body,omitempty"`
	// Base64 hands the body to the gateway as Base64.
	Base64 bool `json:"base64,omitempty"`
	// NotExecuted says so next to the response, or marks the error.
	NotExecuted bool `json:"notExecuted,omitempty"`
	// Error is returned in place of a response; Permanent marks it.
	Error     string `json:"error,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
	Panic     bool   `json:"panic,omitempty"`
	// Hang never returns, and ignores the context.
	Hang bool `json:"hang,omitempty"`
}

// Do does what comes before the response, or in place of it.
func (a Answer) Do(ctx context.Context) error {
	switch {
	case a.Panic:
		panic("as the table says")
	case a.Hang:
		select {}
	case a.Permanent:
		return idem.Permanent(errors.New(a.Error))
	case a.Error != "" && a.NotExecuted:
		return idem.NotExecuted(errors.New(a.Error))
	case a.Error != "":
		return errors.New(a.Error)
	case a.NotExecuted:
		idem.SetNotExecuted(ctx)
	}
	return nil
}

// Request is what a client sends.
type Request struct {
	Method, Path, Body string
	Tenant             string // empty for none
	Header             http.Header
}

// Change changes a request before it is sent.
type Change = func(*Request)

// NewRequest is a request with that key that the contract accepts.
func NewRequest(key string) Request {
	return Request{
		Method: "POST", Path: "/payments", Tenant: "blue", Body: `{"amount":4999,"currency":"EUR"}`,
		Header: http.Header{"Idempotency-Key": {key}, "Content-Type": {"application/json"}},
	}
}

// With is the request with changes, which may be nil.
func (r Request) With(changes ...Change) Request {
	r.Header = maps.Clone(r.Header)
	for _, change := range changes {
		if change != nil {
			change(&r)
		}
	}
	return r
}

// Key is the request's key.
func (r Request) Key() string { return r.Header["Idempotency-Key"][0] }

// Header sets a header's lines; none removes it.
func Header(name string, values ...string) Change {
	return func(r *Request) {
		if r.Header[name] = values; len(values) == 0 {
			delete(r.Header, name)
		}
	}
}

// Choose sends the request to a variant.
func Choose(variant string) Change { return Header(VariantHeader, variant) }

// Path, Body and Method send another one.
func Path(p string) Change { return func(r *Request) { r.Path = p } }

func Body(b string) Change { return func(r *Request) { r.Body = b } }

func Method(m string) Change { return func(r *Request) { r.Method = m } }

// Tenant sends the request as that tenant's.
func Tenant(name string) Change { return func(r *Request) { r.Tenant = name } }
