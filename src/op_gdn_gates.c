/* SPDX-License-Identifier: MIT */
#include "op_gdn_gates.h"

#include "status.h"

const char *const wd_gdn_beta_modes[] = {"value", "sigmoid", NULL};

wd_status wd_gdn_check_gates(const struct wd_problem *p, size_t A_log, size_t dt_bias, size_t l2norm_eps)
{
    if (p->tensor[A_log].present != p->tensor[dt_bias].present)
        return wd_fail(WD_EINVAL, "wd_%s: %s: missing, but %s is given: raw gates need both", p->op->name,
                       p->tensor[A_log].present ? "dt_bias" : "A_log", p->tensor[A_log].present ? "A_log" : "dt_bias");
    if (p->real[l2norm_eps] < 0)
        return wd_fail(WD_EINVAL, "wd_%s: l2norm_eps: %g is negative", p->op->name, (double)p->real[l2norm_eps]);
    return WD_OK;
}
