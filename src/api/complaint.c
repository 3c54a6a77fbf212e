/* SPDX-License-Identifier: MIT */

/*
 * What went wrong, in words.
 *
 * Each refusal of the library writes one sentence with the field and the value into the caller's
 * struct weir_error.
 */

#include "api/complaint.h"

#include <stdarg.h>
#include <stdio.h>

int weir__complain(struct weir_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->code = code;
        va_start(arguments, format);
        (void)vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
    }
    return code;
}
