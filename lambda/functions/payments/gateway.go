package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// behind returns the Lambda handler for an API of this flavour, whose authorizer
// has the tenant.
func (s *service) behind(engine *idem.Engine, api, tenant string) (any, error) {
	tenants, err := tenantOf(tenant)
	if err != nil {
		return nil, err
	}
	options := &idemhttp.Options{Later: accepted()}
	switch api {
	case "", "http":
		return idemlambda.HTTPAPI(engine, operations, tenants, options, s.handle), nil
	case "rest":
		return idemlambda.RESTAPI(engine, operations, tenants, options, s.handleREST), nil
	}
	return nil, fmt.Errorf("PAYMENTS_API is %q: use http or rest", api)
}

func tenantOf(setting string) (idemhttp.TenantFunc, error) {
	kind, name, _ := strings.Cut(setting, ":")
	switch {
	case setting == "":
		return idemhttp.Claim("sub"), nil
	case kind == "jwt" && name != "":
		return idemhttp.Claim(name), nil
	case kind == "lambda" && name != "":
		return idemhttp.AuthorizerValue(name), nil
	case setting == "iam":
		return idemhttp.IAMAccount, nil
	case setting == "none":
		return idemhttp.SingleTenant, nil
	}
	return nil, fmt.Errorf("PAYMENTS_TENANT is %q: use jwt:<claim>, lambda:<name>, iam or none", setting)
}

// handleREST is handle for payload 1.0, with the fields that the business needs.
func (s *service) handleREST(ctx context.Context,
	r events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	res, err := s.handle(ctx, request{RouteKey: r.HTTPMethod + " " + r.Resource, Body: r.Body})
	return events.APIGatewayProxyResponse{StatusCode: res.StatusCode, Headers: res.Headers, Body: res.Body}, err
}
