/* The tape of a JSON document; json_tokens.py documents it. */
#ifndef HOLDALL_JSON_H
#define HOLDALL_JSON_H

#include <stdint.h>

enum kind { OBJECT = 1, ARRAY, KEY, STRING, INT, FLOAT, TRUE, FALSE, NONE, KIND = 15, ESCAPED = 16 };

struct token {
    uint32_t kind; /* with ESCAPED for a string with escapes, and from bit 8 on the number of open containers */
    uint32_t start, end;
    uint32_t link; /* the index after this value and everything in it */
};

#endif
