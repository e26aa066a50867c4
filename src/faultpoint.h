/*-------------------------------------------------------------------------
 *
 * faultpoint.h
 *	  Named moments at which a test makes a process stop, fail or die.
 *
 * Only "make FAULTS=1" compiles them in.  A point is placed where a failure
 * between two steps matters, and is named after the step before it.  Each
 * name is used only once.  A point's comment says if an LWLock is held there.
 *
 * src/faultpoint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKL_FAULTPOINT_H
#define ZKL_FAULTPOINT_H

#ifdef ZKLOCK_FAULTS
extern void zkl_fault_point(const char *name);
#define ZKL_FAULT_POINT(name)	zkl_fault_point(name)
#else
#define ZKL_FAULT_POINT(name)	((void) 0)
#endif

#endif							/* ZKL_FAULTPOINT_H */
