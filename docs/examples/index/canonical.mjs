/** The canonical document of a cluster of equal documents. Pure. */

/**
 * The document to whose address most documents link; of several the one with the least name.
 * @param {readonly { name: string, anchors: number }[]} documents
 * @returns {string | undefined} undefined when the cluster is empty
 */
export function canonicalOf(documents) {
  const [first] = documents.toSorted((a, b) => b.anchors - a.anchors || (a.name < b.name ? -1 : 1))
  return first?.name
}

/** The value of `cluster/HASH`. @param {readonly { name: string, anchors: number }[]} documents */
export function clusterValue(documents) {
  const canonical = canonicalOf(documents)
  return canonical === undefined ? undefined : JSON.stringify({ canonical, documents: documents.length })
}
