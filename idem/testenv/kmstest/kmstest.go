// Package kmstest gives tests a KMS of their own, which makes data keys and decrypts them. It knows no
// policies, grants and rotation.
package kmstest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"
)

// Service is a KMS of this process, with the requests, answers and errors of the two calls as
// in the API reference (https://docs.aws.amazon.com/kms/latest/APIReference/). Its keys exist
// once they are named. It is safe for concurrent use.
type Service struct {
	// URL is its endpoint.
	URL string

	mu    sync.Mutex
	calls []string
	// fault, if not nil, answers instead if it returns a status other than zero.
	fault func(call string) (status int, code string)
}

type request struct {
	KeyID             string `json:"KeyId"`
	KeySpec           string
	CiphertextBlob    []byte
	EncryptionContext map[string]string
}

// Made returns the names of the calls since the last time.
func (s *Service) Made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Breaks has the service answer calls with the status and the error that fault returns, until it is
// nil. A call for which it returns zero is answered as usual.
func (s *Service) Breaks(fault func(call string) (int, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// wrapping is the KMS key's cipher, under a key that its name gives.
func wrapping(name string) cipher.AEAD {
	key := sha256.Sum256([]byte("secret of " + name))
	block, _ := aes.NewCipher(key[:])
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return aead
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "TrentService.")
	s.mu.Lock()
	s.calls = append(s.calls, call)
	fault := s.fault
	s.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(status int, code string) { answer(status, map[string]string{"__type": code, "message": "refused"}) }
	if fault != nil {
		if status, code := fault(call); status != 0 {
			refuse(status, code)
			return
		}
	}
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(400, "SerializationException")
		return
	}
	// Maps are encoded in the order of their names.
	bound, _ := json.Marshal(in.EncryptionContext)
	owner := sha256.Sum256([]byte(in.KeyID))
	switch call {
	case "GenerateDataKey":
		if in.KeySpec != "AES_256" {
			refuse(400, "ValidationException")
			return
		}
		plain := make([]byte, 32)
		_, _ = rand.Read(plain)
		blob := wrapping(in.KeyID).Seal(bytes.Clone(owner[:]), nil, append(plain, make([]byte, 184-32-28-32)...), bound)
		answer(200, map[string]any{"CiphertextBlob": blob, "Plaintext": plain, "KeyId": in.KeyID})
	case "Decrypt":
		if len(in.CiphertextBlob) < 60 {
			refuse(400, "InvalidCiphertextException")
			return
		}
		if !bytes.Equal(in.CiphertextBlob[:32], owner[:]) {
			refuse(400, "IncorrectKeyException")
			return
		}
		plain, err := wrapping(in.KeyID).Open(nil, nil, in.CiphertextBlob[32:], bound)
		if err != nil {
			refuse(400, "InvalidCiphertextException")
			return
		}
		answer(200, map[string]any{"Plaintext": plain[:32], "KeyId": in.KeyID, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"})
	default:
		refuse(400, "UnknownOperationException")
	}
}

// New starts a service, which ends with the test.
func New(tb testing.TB) *Service {
	tb.Helper()
	s := &Service{}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Client is a client of the service, which tries once.
func (s *Service) Client() *kms.Client {
	return kms.New(kms.Options{
		BaseEndpoint: &s.URL, Region: "us-east-1", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", ""),
	})
}
