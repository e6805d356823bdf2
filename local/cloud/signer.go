package cloud

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// signature is that of a request (Signature Version 4).
type signature struct {
	key, region, service, text string
	headers                    []string // that are signed
}

// signatureOf is empty if the request is not signed.
func signatureOf(r *http.Request) (s signature) {
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			if fields := strings.Split(value, "/"); len(fields) == 5 {
				s.key, s.region, s.service = fields[0], fields[2], fields[3]
			}
		case "SignedHeaders":
			s.headers = strings.Split(value, ";")
		case "Signature":
			s.text = value
		}
	}
	return s
}

// signer checks the signature of a request to a service, which has to be made with the credentials that are valid here.
func signer(r gateway.Request, service string) (gateway.Caller, error) {
	signed := signatureOf(r.Request)
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	why := ""
	switch {
	case r.URL.Query().Has("X-Amz-Signature"):
		why = "its signature is in the query, and only one in the headers is checked here"
	case signed.text == "" || err != nil:
		why = "it is not signed (Signature Version 4)"
	case signed.key != AccessKey:
		why = "it is signed with another access key than " + AccessKey
	case signed.region != region || signed.service != service:
		why = fmt.Sprintf("it is signed for %s in %s, and this is %s in %s", signed.service, signed.region, service,
			region)
	case time.Since(at).Abs() > 5*time.Minute:
		why = "its signature is older than five minutes"
	}
	if why != "" {
		return gateway.Caller{}, gateway.Forbidden(why)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return gateway.Caller{}, err
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return gateway.Caller{}, err
	}
	again.ContentLength = 0 // signed only if it is among the headers
	for _, name := range signed.headers {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, again,
		hex.EncodeToString(sum[:]), service, region, at)
	want := signatureOf(again).text
	if err != nil || subtle.ConstantTimeCompare([]byte(want), []byte(signed.text)) != 1 {
		return gateway.Caller{}, gateway.Forbidden("its signature is that of another request, or of another secret")
	}
	return gateway.Caller{Signer: &gateway.Principal{AccountID: account, UserID: "AIDAIDEMLOCAL",
		ARN: "arn:aws:iam::" + account + ":user/local"}}, nil
}
