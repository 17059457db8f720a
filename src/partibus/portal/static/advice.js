// What is worth knowing where something is chosen (docs/ADVICE.md says more).

export const PARTITIONING =
  "Spread over all stores: when one is down, the entity goes on without it. For low traffic a " +
  "conventional entity is recommended (untick). It cannot be changed later.";
export const SESSIONS =
  "Order within a session. A session lives in one fragment, and an outage of that one refuses it: " +
  "consistency, bought with availability.";
export const DUPLICATES =
  "By message id, which then also decides the fragment: consistency, bought with availability.";
export const KEY =
  "Leave it empty unless messages need an order among them: with a key, a message can go to one " +
  "fragment only, and is refused while that one is down.";
export const CLIENTS =
  "Give clients an operation timeout of 60 seconds (their default): a message without a key may have " +
  "to step over a fragment that does not answer. Over HTTP, keep the connection open between receives.";
