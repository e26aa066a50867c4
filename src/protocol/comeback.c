/*-------------------------------------------------------------------------
 *
 * comeback.c
 *	  Does it pay to keep the ticket of a path for the path's next lock?
 *
 * src/protocol/comeback.c
 *
 *-------------------------------------------------------------------------
 */
#include "protocol/comeback.h"

#include "protocol/recipe.h"

#define MOST		7
#define PAYS_FROM	4

void
zkl_comeback_start(ZklComeback *comeback, const char *name)
{
	comeback->worth = PAYS_FROM;
	comeback->number = zkl_recipe_number(name);
}

/* A smaller number only shows that the directory was made anew. */
void
zkl_comeback_owned(ZklComeback *comeback, const char *name)
{
	int			last = comeback->number;

	comeback->number = zkl_recipe_number(name);
	if (last < 0 || comeback->number <= last)
		return;
	if (comeback->number == last + 1)
		zkl_comeback_used(comeback);
	else
		zkl_comeback_taken(comeback);
}

void
zkl_comeback_used(ZklComeback *comeback)
{
	comeback->worth += comeback->worth < MOST;
}

void
zkl_comeback_taken(ZklComeback *comeback)
{
	comeback->worth -= comeback->worth > 0;
}

void
zkl_comeback_downgraded(ZklComeback *comeback)
{
	if (comeback->number >= 0)
		comeback->number++;
}

bool
zkl_comeback_pays(const ZklComeback *comeback)
{
	return comeback->worth >= PAYS_FROM;
}
