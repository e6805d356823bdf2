# Made from the constructs of package infra: see README.md. go test ./template-tests -run TestPlain -update renews it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

variable "name" {
  default     = "idem"
  description = "Begins the name of each resource: 1 to 32 letters, digits and hyphens."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9-]{1,32}$", var.name))
    error_message = "Begins the name of each resource: 1 to 32 letters, digits and hyphens."
  }
}

variable "alarm_topic" {
  description = "ARN of the SNS topic that gets the alarms."
  type        = string

  validation {
    condition     = can(regex("^arn:.+", var.alarm_topic))
    error_message = "ARN of the SNS topic that gets the alarms."
  }
}

variable "log_retention" {
  default     = 30
  description = "Days for which logs are kept: a number that CloudWatch Logs accepts."
  type        = number
}

variable "tenant" {
  default     = ""
  description = "The tenant that the tenant policy is for, percent-encoded. Empty: records without a tenant."
  type        = string

  validation {
    condition     = can(regex("^([A-Za-z0-9._~-]|%[0-9A-F]{2})*$", var.tenant))
    error_message = "The tenant that the tenant policy is for, percent-encoded. Empty: records without a tenant."
  }
}
